# SPDX-License-Identifier: Apache-2.0
"""The command `quern` of an installed package: the program in the package's folder."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "quern")
    os.execv(program, [program] + sys.argv[1:])
