"""The configurations of the methods: functions that return a new one at each call."""

from __future__ import annotations

from nerfstudio.cameras.camera_optimizers import CameraOptimizerConfig
from nerfstudio.configs.base_config import LoggingConfig, MachineConfig, ViewerConfig
from nerfstudio.data.datamanagers.base_datamanager import VanillaDataManagerConfig
from nerfstudio.data.datamanagers.parallel_datamanager import ParallelDataManagerConfig
from nerfstudio.data.dataparsers.nerfstudio_dataparser import NerfstudioDataParserConfig
from nerfstudio.engine.optimizers import AdamOptimizerConfig
from nerfstudio.engine.schedulers import ExponentialDecaySchedulerConfig
from nerfstudio.engine.trainer import TrainerConfig

from inlier.integrations.nerfstudio._model import RobustNerfactoModelConfig
from inlier.integrations.nerfstudio._pipeline import RobustPipelineConfig

__all__ = ["robust_nerfacto", "robust_nerfacto_tiny"]


def robust_nerfacto() -> TrainerConfig:
    """Return Nerfacto as it comes, with weighted rays: for a GPU."""
    return TrainerConfig(
        method_name="robust-nerfacto",
        steps_per_eval_batch=500,
        steps_per_save=2000,
        max_num_iterations=30000,
        mixed_precision=True,
        pipeline=RobustPipelineConfig(
            datamanager=ParallelDataManagerConfig(
                dataparser=NerfstudioDataParserConfig(),
                train_num_rays_per_batch=4096,
                eval_num_rays_per_batch=4096,
            ),
            model=RobustNerfactoModelConfig(
                eval_num_rays_per_chunk=1 << 15,
                average_init_density=0.01,
                camera_optimizer=CameraOptimizerConfig(mode="SO3xR3"),
            ),
        ),
        optimizers={
            "proposal_networks": _adam(1e-2, 1e-4, 200_000),
            "fields": _adam(1e-2, 1e-4, 200_000),
            "camera_opt": _adam(1e-3, 1e-4, 5000),
        },
        viewer=ViewerConfig(num_rays_per_chunk=1 << 15),
        vis="viewer",
    )


def robust_nerfacto_tiny() -> TrainerConfig:
    """Return a Nerfacto small enough for a CPU, with weighted rays: for a quick look and for tests."""
    return TrainerConfig(
        method_name="robust-nerfacto-tiny",
        steps_per_eval_batch=500,
        steps_per_eval_image=500,
        steps_per_save=500,
        max_num_iterations=1000,
        mixed_precision=False,
        machine=MachineConfig(device_type="cpu"),
        logging=LoggingConfig(steps_per_log=50),
        pipeline=RobustPipelineConfig(
            datamanager=VanillaDataManagerConfig(
                dataparser=NerfstudioDataParserConfig(eval_mode="interval", eval_interval=8),
                train_num_rays_per_batch=512,
                eval_num_rays_per_batch=512,
            ),
            model=RobustNerfactoModelConfig(
                eval_num_rays_per_chunk=4096,
                average_init_density=0.01,
                camera_optimizer=CameraOptimizerConfig(mode="off"),
                implementation="torch",
                num_levels=6,
                features_per_level=4,
                max_res=512,
                log2_hashmap_size=15,
                hidden_dim=32,
                hidden_dim_color=32,
                use_appearance_embedding=False,
                num_proposal_iterations=1,
                num_proposal_samples_per_ray=(24,),
                num_nerf_samples_per_ray=12,
                proposal_net_args_list=[
                    {
                        "hidden_dim": 16,
                        "log2_hashmap_size": 14,
                        "num_levels": 4,
                        "max_res": 64,
                        "use_linear": False,
                    }
                ],
                proposal_weights_anneal_max_num_iters=300,
                robust_warmup=200,
                update_every=5,
            ),
        ),
        optimizers={
            "proposal_networks": _adam(1e-2, 1e-3, 1000),
            "fields": _adam(1e-2, 1e-3, 1000),
            "camera_opt": _adam(1e-3, 1e-4, 5000),
        },
        viewer=ViewerConfig(num_rays_per_chunk=4096, quit_on_train_completion=True),
        vis="tensorboard",
    )


def _adam(first: float, last: float, steps: int) -> dict[str, object]:
    return {
        "optimizer": AdamOptimizerConfig(lr=first, eps=1e-15),
        "scheduler": ExponentialDecaySchedulerConfig(lr_final=last, max_steps=steps),
    }
