#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes ir/math/tables.h: the polynomial coefficients of the math functions.

Every coefficient is computed here, in 60-digit arithmetic (package mpmath, from PyPI), as a minimax fit
with the coefficients rounded to the working precision one at a time, lowest power first, and the rest
fitted again after each rounding, so that the error of the rounded polynomial is what is reported.

    python3 -m venv venv && venv/bin/pip install mpmath gmpy2
    venv/bin/python tools/dev/minimax.py > ir/math/tables.h      (prints the errors on stderr)
    venv/bin/python tools/dev/minimax.py exp_f32 sin_f64               (only these, to try something)

It is not part of the build: the header that it makes is committed.
"""
import sys
from mpmath import mp, mpf, matrix, lu_solve

mp.dps = 60


def round_to(value, bits):
    """value rounded to a binary float of `bits` significant bits (nearest even)."""
    if value == 0:
        return mpf(0)
    mantissa, exponent = mp.frexp(value)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), exponent - bits)


class Fit:
    """Minimax by Lawson's iteration: least squares on Chebyshev points, whose weights are multiplied by the
    error at each round. It needs no Haar condition, which a fit with fixed leading coefficients lacks."""

    def __init__(self, target, weight, powers, low, high):
        count = 8 * len(powers) + 40
        # An even count keeps the middle, where a weight may vanish, out of the points.
        self.points = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (i + mpf("0.5")) / count)
                       for i in range(count)]
        self.weights = [weight(x) for x in self.points]
        self.targets = [w * target(x) for x, w in zip(self.points, self.weights)]
        self.rows = [[w * x ** p for p in powers] for x, w in zip(self.points, self.weights)]

    def errors(self, known):
        return [t - sum(c * r for c, r in zip(known, row)) for t, row in zip(self.targets, self.rows)]

    def solve(self, known, rounds):
        """The coefficients behind `known`, which stay."""
        first = len(known)
        n = len(self.rows[0]) - first
        residual = self.errors(known)
        lawson = [mpf(1)] * len(residual)
        best, best_error = None, mpf("inf")
        for _ in range(rounds):
            a, b = matrix(n, n), matrix(n, 1)
            for w, row, t in zip(lawson, self.rows, residual):
                scaled = [w * v for v in row[first:]]
                for i in range(n):
                    b[i] += scaled[i] * t
                    for j in range(i, n):
                        a[i, j] += scaled[i] * row[first + j]
            for i in range(n):
                for j in range(i):
                    a[i, j] = a[j, i]
            solution = lu_solve(a, b)
            candidate = known + [solution[i] for i in range(n)]
            errors = [abs(e) for e in self.errors(candidate)]
            if max(errors) < best_error:
                best, best_error = candidate, max(errors)
            lawson = [w * e for w, e in zip(lawson, errors)]
            total = sum(lawson)
            lawson = [w / total for w in lawson]
        return best[first:], best_error


def fit(name, bits, target, weight, powers, low, high):
    """Coefficients rounded to `bits`, and the largest weighted error with them."""
    problem = Fit(target, weight, powers, mpf(low), mpf(high))
    known = []
    _, ideal = problem.solve(known, 24)
    while len(known) < len(powers):
        rest, _ = problem.solve(known, 8)
        known.append(round_to(rest[0], bits))
    final = max(abs(e) for e in problem.errors(known))
    print(f"{name}: {len(powers)} terms, error 2^{mp.nstr(mp.log(ideal, 2), 4)} before rounding, "
          f"2^{mp.nstr(mp.log(final, 2), 4)} after", file=sys.stderr)
    return known, final


def hexfloat(value):
    text = float(value).hex()
    return text.replace("0000000000000p", "0p").replace("0x1.0p", "0x1p") if "." in text else text


def constant_split(value, pieces):
    """value as a sum of floats with the numbers of bits in `pieces`."""
    out = []
    for bits in pieces:
        part = round_to(value, bits)
        out.append(part)
        value -= part
    return out


LN2 = mp.log(2)
HALF_LN2 = LN2 / 2 * mpf("1.0005")
PIO4 = mp.pi / 4 * mpf("1.0005")


def series(first, term):
    """Sum of term(k) for k = first, first+1, … until it no longer changes the value."""
    total, k = mpf(0), first
    while True:
        t = term(k)
        total += t
        if abs(t) < mpf(10) ** -70 or k > 400:
            return total
        k += 1


def exp_tail(r):  # (e^r - 1) / r
    return series(1, lambda k: r ** (k - 1) / mp.factorial(k))


def log_tail(f):  # (log(1+f) - f + f^2/2) / f^3
    if abs(f) < mpf("0.02"):
        return series(3, lambda k: (-1) ** (k + 1) * f ** (k - 3) / k)
    return (mp.log1p(f) - f + f * f / 2) / f ** 3


def atanh_tail(z, first=3):  # (2 atanh(s) - lower terms) / s^first, z = s^2
    return series((first - 1) // 2, lambda k: 2 * z ** (k - (first - 1) // 2) / (2 * k + 1))


def sin_tail(z):  # (sin r - r) / r^3
    return series(1, lambda k: (-1) ** k * z ** (k - 1) / mp.factorial(2 * k + 1))


def cos_tail(z):  # (cos r - 1 + z/2) / z^2
    return series(2, lambda k: (-1) ** k * z ** (k - 2) / mp.factorial(2 * k))


def tanh_tail(z):  # (tanh x - x) / x^3
    x = mp.sqrt(z)
    if x < mpf("1e-12"):
        return mpf(-1) / 3 + 2 * z / 15
    return (mp.tanh(x) - x) / x ** 3


def erf_tail(z):  # erf x / x
    return 2 / mp.sqrt(mp.pi) * series(0, lambda k: (-z) ** k / (mp.factorial(k) * (2 * k + 1)))


TABLES = {}


def table(function):
    TABLES[function.__name__] = function
    return function


def span(n, first=0):
    return list(range(first, first + n))


# e^r = 1 + r (1 + r (c0 + c1 r + …)): |r| <= ln2/2
@table
def exp_f32():
    return fit("exp_f32", 24, lambda r: series(2, lambda k: r ** (k - 2) / mp.factorial(k)),
               lambda r: r * r / mp.exp(r), span(5), -HALF_LN2, HALF_LN2)


@table
def exp_f64():
    return fit("exp_f64", 53, lambda r: series(2, lambda k: r ** (k - 2) / mp.factorial(k)),
               lambda r: r * r / mp.exp(r), span(10), -HALF_LN2, HALF_LN2)


# 2^r = 1 + r (c0 + c1 r + …): |r| <= 1/2
@table
def exp2_f32():
    return fit("exp2_f32", 24, lambda r: LN2 * exp_tail(r * LN2), lambda r: abs(r) / mp.exp(r * LN2),
               span(6), -0.5, 0.5)


@table
def exp2_f64():
    return fit("exp2_f64", 53, lambda r: LN2 * exp_tail(r * LN2), lambda r: abs(r) / mp.exp(r * LN2),
               span(11), -0.5, 0.5)


# The same for an f32 result computed in f64 (pow)
@table
def exp2_narrow():
    return fit("exp2_narrow", 53, lambda r: LN2 * exp_tail(r * LN2),
               lambda r: abs(r) / mp.exp(r * LN2), span(6), -0.5, 0.5)


# log(1+f) = f - f^2/2 + f^3 (c0 + c1 f + …), for 1+f from 3/4 to 3/2
@table
def log_f32():
    return fit("log_f32", 24, log_tail, lambda f: abs(f ** 3 / mp.log1p(f)) if f else mpf(0) + f * f,
               span(8), mpf("-0.25"), mpf("0.5"))


# 2 atanh(s) = 2 s + s^3 (c0 + c1 z + …), z = s^2, s = f / (2 + f)
ATANH_Z = mpf("0.0401")  # at 1+f = 3/2


@table
def log_f64():
    return fit("log_f64", 53, atanh_tail, lambda z: z / 2, span(8), 0, ATANH_Z)


# log2 of an f32 value computed in f64 (pow): log2(m) = s (c0 + c1 z + …)
@table
def log2_narrow():
    return fit("log2_narrow", 53, lambda z: atanh_tail(z, 1) / LN2, lambda z: 1 / atanh_tail(z, 1),
               span(6), 0, ATANH_Z)


# For the two-word logarithm of pow: 2 atanh(s) = 2 s + s^3 (2/3 + z (c0 + c1 z + …))
@table
def pow_log_f64():
    return fit("pow_log_f64", 53, lambda z: atanh_tail(z, 5), lambda z: z * z / 2, span(8), 0, ATANH_Z)


# The same for f32 in pairs (GPU): log2(m) = s (2/ln2 + z (2/(3 ln2) + z (c0 + c1 z + …))), the two
# constants in two words
@table
def pow_log2_f32():
    return fit("pow_log2_f32", 24, lambda z: atanh_tail(z, 5) / LN2, lambda z: z * z / atanh_tail(z, 1) * LN2,
               span(4), 0, ATANH_Z)


# and 2^r = 1 + r (ln 2 + r (c0 + c1 r + …)), ln 2 in two words: |r| <= 1/2
@table
def pow_exp2_f32():
    return fit("pow_exp2_f32", 24, lambda r: LN2 ** 2 * series(2, lambda k: (r * LN2) ** (k - 2) / mp.factorial(k)),
               lambda r: r * r / mp.exp(r * LN2), span(5), -0.5, 0.5)


@table
def sin_f32():
    return fit("sin_f32", 24, sin_tail, lambda z: z / (1 + z * sin_tail(z)), span(3), 0, PIO4 ** 2)


@table
def cos_f32():
    return fit("cos_f32", 24, cos_tail, lambda z: z * z / mp.cos(mp.sqrt(z)), span(3), 0, PIO4 ** 2)


@table
def sin_f64():
    return fit("sin_f64", 53, sin_tail, lambda z: z / (1 + z * sin_tail(z)), span(6), 0, PIO4 ** 2)


@table
def cos_f64():
    return fit("cos_f64", 53, cos_tail, lambda z: z * z / mp.cos(mp.sqrt(z)), span(6), 0, PIO4 ** 2)


# tanh x = x + x^3 (c0 + c1 z + …) for |x| <= 0.65
@table
def tanh_f32():
    return fit("tanh_f32", 24, tanh_tail,
               lambda z: z / (1 + z * tanh_tail(z)), span(6), 0, mpf("0.65") ** 2)


@table
def tanh_f64():
    return fit("tanh_f64", 53, tanh_tail,
               lambda z: z / (1 + z * tanh_tail(z)), span(12), 0, mpf("0.65") ** 2)


# erf x = x + x (c0 + c1 z + …) for |x| <= 1 (c0 is 2/sqrt(pi) - 1)
@table
def erf_f32():
    return fit("erf_f32", 24, lambda z: erf_tail(z) - 1, lambda z: 1 / erf_tail(z), span(7), 0, 1)


@table
def erf_f64():
    return fit("erf_f64", 53, lambda z: erf_tail(z) - 1, lambda z: 1 / erf_tail(z), span(14), 0, 1)


def log2_erfc(x):
    return mp.log(mp.erfc(x)) / LN2


# erfc x = 2^(x (c0 + c1 x + …)) for 1 <= x <= the end where erf x rounds to 1; the error is that of erf.
@table
def erfc_f32():
    return fit("erfc_f32", 24, lambda x: log2_erfc(x) / x, lambda x: x * mp.erfc(x) * LN2, span(7), 1,
               mpf("4.0"))


@table
def erfc_f64():
    return fit("erfc_f64", 53, lambda x: log2_erfc(x) / x, lambda x: x * mp.erfc(x) * LN2, span(18), 1,
               mpf("6.0"))


# 2^r again, for where it is subtracted from 1 and at most 0.16: |r| <= 1/2
@table
def erfc_exp2_f32():
    return fit("erfc_exp2_f32", 24, lambda r: LN2 * exp_tail(r * LN2),
               lambda r: abs(r) / mp.exp(r * LN2), span(5), -0.5, 0.5)


def odd_tail(function, x, third, fifth):  # (f(x) - x) / x^3 of an odd function
    if x < mpf("1e-12"):
        return third + fifth * x * x
    return (function(x) - x) / x ** 3


def sinh_tail(z):  # (sinh x - x) / x^3
    return series(1, lambda k: z ** (k - 1) / mp.factorial(2 * k + 1))


def asin_tail(z):
    return odd_tail(mp.asin, mp.sqrt(z), mpf(1) / 6, mpf(3) / 40)


def atan_tail(z):
    return odd_tail(mp.atan, mp.sqrt(z), mpf(-1) / 3, mpf(1) / 5)


# sinh x = x + x^3 (c0 + c1 z + …) for |x| <= 1
@table
def sinh_f32():
    return fit("sinh_f32", 24, sinh_tail, lambda z: z / (1 + z * sinh_tail(z)), span(4), 0, 1)


@table
def sinh_f64():
    return fit("sinh_f64", 53, sinh_tail, lambda z: z / (1 + z * sinh_tail(z)), span(7), 0, 1)


# asin x = x + x^3 (c0 + c1 z + …) for |x| <= 1/2
@table
def asin_f32():
    return fit("asin_f32", 24, asin_tail, lambda z: z / (1 + z * asin_tail(z)), span(5), 0, mpf("0.25"))


@table
def asin_f64():
    return fit("asin_f64", 53, asin_tail, lambda z: z / (1 + z * asin_tail(z)), span(13), 0, mpf("0.25"))


# atan x = x + x^3 (c0 + c1 z + …) for |x| <= tan(pi / 8)
TAN_PI8_SQUARED = mp.tan(mp.pi / 8) ** 2 * mpf("1.0005")


@table
def atan_f32():
    return fit("atan_f32", 24, atan_tail, lambda z: z / (1 + z * atan_tail(z)), span(5), 0, TAN_PI8_SQUARED)


@table
def atan_f64():
    return fit("atan_f64", 53, atan_tail, lambda z: z / (1 + z * atan_tail(z)), span(11), 0, TAN_PI8_SQUARED)


# (1 + f)^(-1/3), roughly, for 1 + f from 3/4 to 3/2: where Newton's iteration of cbrt starts
@table
def cbrt_start():
    return fit("cbrt_start", 24, lambda f: (1 + f) ** (mpf(-1) / 3), lambda f: (1 + f) ** (mpf(1) / 3),
               span(6), mpf("-0.25"), mpf("0.5"))


def main():
    names = sys.argv[1:] or list(TABLES)
    print("""// SPDX-License-Identifier: Apache-2.0
// The polynomial coefficients of the math functions, lowest power first.
// Made by tools/dev/minimax.py, which says what each approximates and how; do not edit by hand.
// The code generators share them: jit/llvm/math_*.c and jit/gpu/prelude.c include it.
#ifndef QUERN_IR_MATH_TABLES_H_
#define QUERN_IR_MATH_TABLES_H_

// clang-format off""")
    for name in names:
        values, error = TABLES[name]()
        print(f"\n// {name}: error below 2^{int(mp.floor(mp.log(error, 2))) + 1}")
        print(f"static const double {name}[] = {{")
        for value in values:
            print(f"    {hexfloat(value)},")
        print("};")
        sys.stdout.flush()
    two_over_pi = 2 / mp.pi
    if not sys.argv[1:]:
        for name, value, pieces, what in (
                ("ln2_f32", LN2, (15, 24), "ln 2 in two words; n * the first is exact for |n| < 2^9; both positive"),
                ("ln2_f64", LN2, (38, 53), "ln 2 in two words; n * the first is exact for |n| < 2^12; both positive"),
                ("log2e_f32", 1 / LN2, (12, 24), "1 / ln 2 in two words, the first short"),
                ("log2e_f64", 1 / LN2, (26, 53), "1 / ln 2 in two words, the first short"),
                ("pow_ln2_f32", LN2, (12, 24), "ln 2 in two words, the first short"),
                ("pow_log2_first", 2 / LN2, (24, 24), "2 / ln 2 in two words"),
                ("pow_log2_second", 2 / (3 * LN2), (24, 24), "2 / (3 ln 2) in two words"),
                ("pio2_f32", mp.pi / 2, (24, 12, 24), "pi/2 for a target with fused multiply-add"),
                ("pio2_f64", mp.pi / 2, (33, 33, 33, 53), "pi/2; n * the first three is exact for n < 2^20"),
                ("pio2_whole", mp.pi / 2, (53, 53), "pi/2 as an unevaluated sum"),
                ("two_thirds", mpf(2) / 3, (53, 53), "2/3 as an unevaluated sum"),
                ("log10_2_f32", mp.log10(2), (15, 24), "log10(2) in two words; n * the first is exact for |n| < 2^9"),
                ("log10_2_f64", mp.log10(2), (38, 53), "log10(2) in two words; n * the first is exact for |n| < 2^12"),
                ("log10e_f32", 1 / mp.log(10), (12, 24), "1 / ln 10 in two words, the first short"),
                ("log10e_f64", 1 / mp.log(10), (26, 53), "1 / ln 10 in two words, the first short"),
                ("pi_f32", mp.pi, (24, 24), "pi as an unevaluated sum"),
                ("pi_f64", mp.pi, (53, 53), "pi as an unevaluated sum")):
            print(f"\n// {what}\nstatic const double {name}[] = {{")
            for part in constant_split(value, pieces):
                print(f"    {hexfloat(part)},")
            print("};")
        mp.dps = 420
        two_over_pi = 2 / mp.pi
        print("\n// 2/pi: 64 bits a word after the binary point, the highest first, behind one word of zeros")
        print("static const unsigned long long two_over_pi[] = {\n    0x0000000000000000ull,")
        for _ in range(20):
            two_over_pi *= mpf(2) ** 64
            word = int(mp.floor(two_over_pi))
            two_over_pi -= word
            print(f"    0x{word:016x}ull,")
        print("};")
    print("\n// clang-format on\n\n#endif  // QUERN_IR_MATH_TABLES_H_")


main()
