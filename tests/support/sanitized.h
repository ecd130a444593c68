// SPDX-License-Identifier: Apache-2.0
// tests/support/sanitized.h: whether AddressSanitizer or ThreadSanitizer is built in.
//
// They make code several times as slow, and a child of fork may find the locks of their heap taken.
#ifndef QUERN_TESTS_SUPPORT_SANITIZED_H_
#define QUERN_TESTS_SUPPORT_SANITIZED_H_

#define IS_SANITIZED 0
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)  // gcc
#undef IS_SANITIZED
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#undef IS_SANITIZED
#define IS_SANITIZED 1
#endif
#endif

#endif  // QUERN_TESTS_SUPPORT_SANITIZED_H_
