"""Maps the folders of the repository to the packages of `lmi`.

A model directory stands ahead of site-packages in DJL's Python worker, so plain top-level packages `model` and
`handler` would be shadowed by a user's own `model.py` and `handler.py`. `lmi` has no `__init__.py`: a namespace package
needs no folder of its own.
"""

from setuptools import find_packages, setup

FOLDERS = ("model", "handler", "formatters")

setup(
    packages=[
        f"lmi.{package}"
        for folder in FOLDERS
        for package in (folder, *(f"{folder}.{inner}" for inner in find_packages(folder)))
    ],
    package_dir={f"lmi.{folder}": folder for folder in FOLDERS},
    package_data={"": ["py.typed"], "lmi.handler.server.playground": ["page/*"]},
    # Only what is named here: no file slips into the wheel because a plug-in of setuptools knows it.
    include_package_data=False,
)
