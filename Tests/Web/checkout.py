"""Folders of the checkout, and the path to the support code of the integration tests."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "Tests" / "Integration"))
