"""Scenes with corrupted pixels (figures 1, 4, 5 and 6); needs nerfstudio.

``data`` reads scenes and corrupts their images, ``training`` trains Nerfacto with a method, and
``experiment`` and ``figures`` make the experiment of them.
"""
