// quern/quern.h: everything. See engine.h for the way from a program's text to a call.
#ifndef QUERN_QUERN_H_
#define QUERN_QUERN_H_

#include "quern/cache.h"
#include "quern/codegen.h"
#include "quern/config.h"
#include "quern/device.h"
#include "quern/engine.h"
#include "quern/ir.h"
#include "quern/status.h"
#include "quern/target.h"
#include "quern/warm.h"

#ifdef __cplusplus
extern "C" {
#endif

// "0.1.0": of the library at run time; QN_VERSION_STRING is that of the headers.
QN_API const char* qn_version(void);
// One line: version, build id and which code generators the build has. Static storage.
QN_API const char* qn_build_info(void);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_QUERN_H_
