"""The pool cards and samples live in candidate_pools/ and are installed as ranker/candidate_pools."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["ranker*"]), "ranker.candidate_pools"],
    package_dir={"ranker.candidate_pools": "candidate_pools"},
)
