// SPDX-License-Identifier: Apache-2.0
// The polynomial coefficients of the math functions, lowest power first.
// Made by tools/dev/minimax.py, which says what each approximates and how; do not edit by hand.
// Each is used by the function of its name in ir/math.
#ifndef QUERN_IR_MATH_TABLES_H_
#define QUERN_IR_MATH_TABLES_H_

// clang-format off

// exp_f32: error below 2^-28
static const double exp_f32[] = {
    0x1.fffffc0000000p-2,
    0x1.5554920000000p-3,
    0x1.5558b00000000p-5,
    0x1.12398c0000000p-7,
    0x1.6a4d180000000p-10,
};

// exp_f64: error below 2^-57
static const double exp_f64[] = {
    0x1.000000000000ap-1,
    0x1.5555555555507p-3,
    0x1.55555555506b5p-5,
    0x1.1111111124b02p-7,
    0x1.6c16c1847a701p-10,
    0x1.a01a0139fcec1p-13,
    0x1.a01999510a810p-16,
    0x1.71df03c6d9af5p-19,
    0x1.28ae0d874ccf2p-22,
    0x1.adb2ec4c75dcfp-26,
};

// exp2_f32: error below 2^-28
static const double exp2_f32[] = {
    0x1.62e4300000000p-1,
    0x1.ebfbdc0000000p-3,
    0x1.c6af7a0000000p-5,
    0x1.3b2dd40000000p-7,
    0x1.5f09480000000p-10,
    0x1.4178420000000p-13,
};

// exp2_f64: error below 2^-57
static const double exp2_f64[] = {
    0x1.62e42fefa39efp-1,
    0x1.ebfbdff82c59dp-3,
    0x1.c6b08d704a0d9p-5,
    0x1.3b2ab6fba0fd0p-7,
    0x1.5d87fe78b2660p-10,
    0x1.4309130c604bep-13,
    0x1.ffcbfc00176a5p-17,
    0x1.62bfcd09a09bdp-20,
    0x1.b525fd5945a8dp-24,
    0x1.e612ed4eda70bp-28,
    0x1.e828457f4c63ep-32,
};

// exp2_narrow: error below 2^-28
static const double exp2_narrow[] = {
    0x1.62e430b19685fp-1,
    0x1.ebfbdc5b77cfap-3,
    0x1.c6aee69a32117p-5,
    0x1.3b2d365b6ed40p-7,
    0x1.5f3f04e48d586p-10,
    0x1.420ade1de7a90p-13,
};

// log_f32: error below 2^-27
static const double log_f32[] = {
    0x1.5555a40000000p-2,
    -0x1.0000440000000p-2,
    0x1.9969700000000p-3,
    -0x1.54eebe0000000p-3,
    0x1.28859a0000000p-3,
    -0x1.0d95100000000p-3,
    0x1.acadd20000000p-4,
    -0x1.7154c20000000p-5,
};

// log_f64: error below 2^-62
static const double log_f64[] = {
    0x1.555555555554fp-1,
    0x1.999999999c185p-2,
    0x1.24924921e3544p-2,
    0x1.c71c7490b8f4cp-3,
    0x1.745c4a9d73c0ep-3,
    0x1.3b35c907a0343p-3,
    0x1.0dcb07c30b7dap-3,
    0x1.1b856662ae3ddp-3,
};

// log2_narrow: error below 2^-41
static const double log2_narrow[] = {
    0x1.71547652b7e8ap+1,
    0x1.ec709dcb67d56p-1,
    0x1.2776bc427d80ep-1,
    0x1.a61ea61b8dde0p-2,
    0x1.46f1a9289df1dp-2,
    0x1.29dac73575823p-2,
};

// pow_log_f64: error below 2^-69
static const double pow_log_f64[] = {
    0x1.9999999999967p-2,
    0x1.2492492498f12p-2,
    0x1.c71c71bc4f5e8p-3,
    0x1.745d1bd11dee6p-3,
    0x1.3b129648504e1p-3,
    0x1.113a54142259fp-3,
    0x1.dac96f846bb1ap-4,
    0x1.0192f4145e313p-3,
};

// pow_log2_f32: error below 2^-41
static const double pow_log2_f32[] = {
    0x1.2776c20000000p-1,
    0x1.a61bb20000000p-2,
    0x1.4741e60000000p-2,
    0x1.26d8a20000000p-2,
};

// pow_exp2_f32: error below 2^-28
static const double pow_exp2_f32[] = {
    0x1.ebfbdc0000000p-3,
    0x1.c6af880000000p-5,
    0x1.3b2ddc0000000p-7,
    0x1.5f04180000000p-10,
    0x1.416f400000000p-13,
};

// sin_f32: error below 2^-27
static const double sin_f32[] = {
    -0x1.5555460000000p-3,
    0x1.1107760000000p-7,
    -0x1.9953000000000p-13,
};

// cos_f32: error below 2^-32
static const double cos_f32[] = {
    0x1.55554a0000000p-5,
    -0x1.6c0c2a0000000p-10,
    0x1.99e9040000000p-16,
};

// sin_f64: error below 2^-57
static const double sin_f64[] = {
    -0x1.5555555555548p-3,
    0x1.111111110f754p-7,
    -0x1.a01a019bf066cp-13,
    0x1.71de355d2bfd3p-19,
    -0x1.ae5e52ccf98b6p-26,
    0x1.5d8daf8ffc16dp-33,
};

// cos_f64: error below 2^-63
static const double cos_f64[] = {
    0x1.555555555554bp-5,
    -0x1.6c16c16c15010p-10,
    0x1.a01a019c8e409p-16,
    -0x1.27e4f7f0ace7cp-22,
    0x1.1ee9db0ed804ap-29,
    -0x1.8fa61052a43b6p-37,
};

// tanh_f32: error below 2^-31
static const double tanh_f32[] = {
    -0x1.5555520000000p-2,
    0x1.110fec0000000p-3,
    -0x1.b9d7aa0000000p-5,
    0x1.629c640000000p-6,
    -0x1.078bae0000000p-7,
    0x1.09675e0000000p-9,
};

// tanh_f64: error below 2^-59
static const double tanh_f64[] = {
    -0x1.555555555554dp-2,
    0x1.1111111110651p-3,
    -0x1.ba1ba1b9820c5p-5,
    0x1.664f48606e0f0p-6,
    -0x1.226e30ded5828p-7,
    0x1.d6d3103d48ef4p-9,
    -0x1.7d9899bd29189p-10,
    0x1.34edcb168d7c8p-11,
    -0x1.efd014be70fdbp-13,
    0x1.7bc52b0943094p-14,
    -0x1.e9b2aa45493c1p-16,
    0x1.78ae5738e579ap-18,
};

// erf_f32: error below 2^-29
static const double erf_f32[] = {
    0x1.06eba80000000p-3,
    -0x1.81273e0000000p-2,
    0x1.ce2cee0000000p-4,
    -0x1.b7f8240000000p-6,
    0x1.53fdb60000000p-8,
    -0x1.a3baf00000000p-11,
    0x1.48c5880000000p-14,
};

// erf_f64: error below 2^-56
static const double erf_f64[] = {
    0x1.06eba8214db69p-3,
    -0x1.812746b037a2bp-2,
    0x1.ce2f21a046405p-4,
    -0x1.b82ce313b0f8fp-6,
    0x1.565bcd41a5966p-8,
    -0x1.c02dbe9a15b16p-11,
    0x1.f9a490b78948ep-14,
    -0x1.f4f2c0e1fd1adp-17,
    0x1.bbe4030f10f0cp-20,
    -0x1.74f39aedf61c7p-23,
    0x1.9b67e084b224dp-26,
    -0x1.c6a7cf6eb233ep-28,
    0x1.0b1cf22ac0644p-29,
    -0x1.3b57c90410bcep-32,
};

// erfc_f32: error below 2^-31
static const double erfc_f32[] = {
    -0x1.a0dc980000000p+0,
    -0x1.d5048e0000000p-1,
    -0x1.3ad1220000000p-3,
    0x1.1bf4cc0000000p-5,
    -0x1.63fa500000000p-8,
    0x1.0a911e0000000p-11,
    -0x1.564ed00000000p-16,
};

// erfc_f64: error below 2^-57
static const double erfc_f64[] = {
    -0x1.a0be826c599a2p+0,
    -0x1.d63eefb0b7747p-1,
    -0x1.2fa68329a49bbp-3,
    0x1.c40d7bb1b5faap-6,
    0x1.417ff4c596a5cp-12,
    -0x1.40307c41142a1p-9,
    0x1.b3289883bdd7dp-11,
    0x1.6877cab272289p-21,
    -0x1.1ff503625fd1fp-13,
    0x1.522fe1791772fp-14,
    -0x1.eb36f4bc26a79p-16,
    0x1.03dfb2b9c25a2p-17,
    -0x1.a004ca03eebdcp-20,
    0x1.f6f844fccb035p-23,
    -0x1.bf39c84ed46f9p-26,
    0x1.148f6ff5d0c0dp-29,
    -0x1.a95393ffc11bfp-34,
    0x1.32453ea0d572ap-39,
};

// erfc_exp2_f32: error below 2^-23
static const double erfc_exp2_f32[] = {
    0x1.62e42a0000000p-1,
    0x1.ebf9bc0000000p-3,
    0x1.c6b6a60000000p-5,
    0x1.3cea640000000p-7,
    0x1.5bf5d60000000p-10,
};


// sinh_f32: error below 2^-31
static const double sinh_f32[] = {
    0x1.5555560000000p-3,
    0x1.1110e00000000p-7,
    0x1.a022ba0000000p-13,
    0x1.756cac0000000p-19,
};

// sinh_f64: error below 2^-61
static const double sinh_f64[] = {
    0x1.5555555555556p-3,
    0x1.1111111111025p-7,
    0x1.a01a01a035e44p-13,
    0x1.71de3a3c466f4p-19,
    0x1.ae646ed47a567p-26,
    0x1.61176e23c28f5p-33,
    0x1.b5a1d4cc9a703p-41,
};

// asin_f32: error below 2^-27
static const double asin_f32[] = {
    0x1.5555c80000000p-3,
    0x1.3302060000000p-4,
    0x1.747b620000000p-5,
    0x1.8c42900000000p-6,
    0x1.59583c0000000p-5,
};

// asin_f64: error below 2^-59
static const double asin_f64[] = {
    0x1.5555555555577p-3,
    0x1.333333332e13bp-4,
    0x1.6db6db7211b69p-5,
    0x1.f1c71a9541ad2p-6,
    0x1.6e8bded6c2f9bp-6,
    0x1.1c49f110b2f1dp-6,
    0x1.ca1f7c0322322p-7,
    0x1.75861b858d3e8p-7,
    0x1.61394da7c911ep-7,
    0x1.e62726787ab3cp-9,
    0x1.638d37715baf9p-6,
    -0x1.57e7c68007c93p-6,
    0x1.0b3fe96e98d59p-5,
};

// atan_f32: error below 2^-30
static const double atan_f32[] = {
    -0x1.55554a0000000p-2,
    0x1.9991e20000000p-3,
    -0x1.23b99c0000000p-3,
    0x1.b223920000000p-4,
    -0x1.f2dfae0000000p-5,
};

// atan_f64: error below 2^-59
static const double atan_f64[] = {
    -0x1.555555555553cp-2,
    0x1.9999999995686p-3,
    -0x1.24924922a2e06p-3,
    0x1.c71c70e2504f5p-4,
    -0x1.745cf877c3475p-4,
    0x1.3b11127bb2df3p-4,
    -0x1.10eb7036da027p-4,
    0x1.df0b5940398b2p-5,
    -0x1.9cc187fd27d85p-5,
    0x1.37ab28b1f79fbp-5,
    -0x1.250fa3ce1b389p-6,
};

// cbrt_start: error below 2^-17
static const double cbrt_start[] = {
    0x1.ffffca0000000p-1,
    -0x1.553c720000000p-2,
    0x1.c76a3a0000000p-3,
    -0x1.6b9c480000000p-3,
    0x1.2f727c0000000p-3,
    -0x1.42efb00000000p-4,
};

// ln 2 in two words; n * the first is exact for |n| < 2^9; both positive
static const double ln2_f32[] = {
    0x1.62e4000000000p-1,
    0x1.7f7d1c0000000p-20,
};

// ln 2 in two words; n * the first is exact for |n| < 2^12; both positive
static const double ln2_f64[] = {
    0x1.62e42fefa0000p-1,
    0x1.cf79abc9e3b3ap-40,
};

// 1 / ln 2 in two words, the first short
static const double log2e_f32[] = {
    0x1.7160000000000p+0,
    -0x1.7135a80000000p-13,
};

// 1 / ln 2 in two words, the first short
static const double log2e_f64[] = {
    0x1.7154768000000p+0,
    -0x1.6a3e80f444178p-27,
};

// ln 2 in two words, the first short
static const double pow_ln2_f32[] = {
    0x1.62e0000000000p-1,
    0x1.0bfbe80000000p-15,
};

// 2 / ln 2 in two words
static const double pow_log2_first[] = {
    0x1.7154760000000p+1,
    0x1.4ae0c00000000p-25,
};

// 2 / (3 ln 2) in two words
static const double pow_log2_second[] = {
    0x1.ec709e0000000p-1,
    -0x1.e2fe020000000p-28,
};

// pi/2 for a target with fused multiply-add
static const double pio2_f32[] = {
    0x1.921fb60000000p+0,
    -0x1.7780000000000p-25,
    0x1.68c2340000000p-39,
};

// pi/2; n * the first three is exact for n < 2^20
static const double pio2_f64[] = {
    0x1.921fb54400000p+0,
    0x1.0b4611a600000p-34,
    0x1.3198a2e000000p-69,
    0x1.b839a252049c1p-104,
};

// pi/2 as an unevaluated sum
static const double pio2_whole[] = {
    0x1.921fb54442d18p+0,
    0x1.1a62633145c07p-54,
};

// 2/3 as an unevaluated sum
static const double two_thirds[] = {
    0x1.5555555555555p-1,
    0x1.5555555555555p-55,
};

// log10(2) in two words; n * the first is exact for |n| < 2^9
static const double log10_2_f32[] = {
    0x1.3440000000000p-2,
    0x1.3509f80000000p-18,
};

// log10(2) in two words; n * the first is exact for |n| < 2^12
static const double log10_2_f64[] = {
    0x1.34413509f8000p-2,
    -0x1.80433b83b532ap-44,
};

// 1 / ln 10 in two words, the first short
static const double log10e_f32[] = {
    0x1.bcc0000000000p-2,
    -0x1.09d5b20000000p-15,
};

// 1 / ln 10 in two words, the first short
static const double log10e_f64[] = {
    0x1.bcb7b18000000p-2,
    -0x1.6c8d78e6acaa4p-29,
};

// pi as an unevaluated sum
static const double pi_f32[] = {
    0x1.921fb60000000p+1,
    -0x1.777a5c0000000p-24,
};

// pi as an unevaluated sum
static const double pi_f64[] = {
    0x1.921fb54442d18p+1,
    0x1.1a62633145c07p-53,
};

// 2/pi: 64 bits a word after the binary point, the highest first, behind one word of zeros
static const unsigned long long two_over_pi[] = {
    0x0000000000000000ull,
    0xa2f9836e4e441529ull,
    0xfc2757d1f534ddc0ull,
    0xdb6295993c439041ull,
    0xfe5163abdebbc561ull,
    0xb7246e3a424dd2e0ull,
    0x06492eea09d1921cull,
    0xfe1deb1cb129a73eull,
    0xe88235f52ebb4484ull,
    0xe99c7026b45f7e41ull,
    0x3991d639835339f4ull,
    0x9c845f8bbdf9283bull,
    0x1ff897ffde05980full,
    0xef2f118b5a0a6d1full,
    0x6d367ecf27cb09b7ull,
    0x4f463f669e5fea2dull,
    0x7527bac7ebe5f17bull,
    0x3d0739f78a5292eaull,
    0x6bfb5fb11f8d5d08ull,
    0x56033046fc7b6babull,
    0xf0cfbc209af4361dull,
};

// clang-format on

#endif  // QUERN_IR_MATH_TABLES_H_
