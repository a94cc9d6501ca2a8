"""The version of this package, which images name and compare: here only, and read from here by the build."""

from typing import Final

VERSION: Final = "0.1.0"
