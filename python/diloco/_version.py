"""The version of the package: that of CMakeLists.txt, and of the library it is bound to."""

__version__ = "0.2.0"
