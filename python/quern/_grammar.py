# SPDX-License-Identifier: Apache-2.0
"""Words of the language, and patterns of its parts. Written by tools/editors/make-grammar."""
OPERATORS = """
truncdiv truncmod ceildiv min max abs popcount clz select fma sqrt rsqrt exp exp2 log log2 tanh erf sin cos pow floor
ceil round trunc copysign isnan isinf isfinite shuffle shuffle_up shuffle_down shuffle_xor warp_sum warp_min warp_max
block_sum block_min block_max warp_size roundeven exp10 expm1 sigmoid sinh cosh log10 log1p asinh acosh atanh tan asin
acos atan atan2 hypot cbrt fmod ldexp nextafter ctz mulhi rotl axis_sum axis_min axis_max
""".split()
ATOMICS = """
atomic_add atomic_min atomic_max atomic_and atomic_or atomic_xor atomic_exchange atomic_cas atomic_load atomic_store
""".split()
DTYPES = """
bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3fn f8e5m2 i4 u4 f4e2m1fn
""".split()
RESERVED = """
func in out inout let if else for parallel vector unroll while alloc const view barrier assert bitcast true false inf
nan return break continue
""".split()
# As in a TextMate grammar: at each place the pattern that matches first, and of those the first in the list.
PATTERNS = [
 {
  "name": "string.quoted.double.quern",
  "begin": "\"",
  "end": "\"|$",
  "patterns": [
   {
    "name": "constant.character.escape.quern",
    "match": "\\\\(?:[\"\\\\nt]|x[0-9A-Fa-f]{2})"
   },
   {
    "name": "invalid.illegal.quern",
    "match": "\\\\.?"
   }
  ]
 },
 {
  "match": "((?<=[)\\]])[ \\t]*\\b(?:strides|align|fast|with)\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "storage.modifier.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "name": "keyword.other.quern",
  "match": "(?<=\\})[ \\t]*\\b(?:from|as)\\b"
 },
 {
  "name": "storage.modifier.memory.quern",
  "match": "(?<=\\bin )[ \\t]*(?:global|shared|local)\\b(?=[ \\t]*;)"
 },
 {
  "match": "\\b(func)[ \\t]+([A-Za-z_][A-Za-z0-9_]*)",
  "captures": {
   "1": {
    "name": "storage.type.function.quern"
   },
   "2": {
    "name": "entity.name.function.quern"
   }
  }
 },
 {
  "match": "((?<=[A-Za-z0-9_\\]])[ \\t]+in\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "keyword.other.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "match": "(\\b(?:inout|out|in)\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "storage.modifier.access.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "match": "(\\b(?:parallel|thread\\.x|thread\\.y|thread\\.z|block\\.x|block\\.y|block\\.z|unroll|vector|for)\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "keyword.control.loop.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "match": "(\\b(?:f4e2m1fn|f8e4m3fn|f8e5m2|bf16|bool|f16|f32|f64|i16|i32|i64|u16|u32|u64|i4|i8|u4|u8)\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "storage.type.dtype.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "match": "(\\b(?:func)\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "storage.type.function.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "match": "(\\b(?:alloc|const|view|let)\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "storage.type.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "match": "(\\b(?:while|else|if)\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "keyword.control.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "match": "(\\b(?:continue|barrier|assert|return|break)\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "keyword.other.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "match": "(\\b(?:bitcast)\\b)(?:[ \\t]*(//.*))?",
  "captures": {
   "1": {
    "name": "support.function.quern"
   },
   "2": {
    "name": "comment.line.double-slash.quern"
   }
  }
 },
 {
  "name": "constant.language.quern",
  "match": "\\b(?:false|true|inf|nan)\\b"
 },
 {
  "name": "keyword.control.reduction.quern",
  "match": "\\b(?:exclusive_scan|argmax|argmin|reduce|prod|scan|max|min|sum)(?=[ \\t]+[A-Za-z_][A-Za-z0-9_]*[ \\t]+in\\b)"
 },
 {
  "name": "support.function.atomic.quern",
  "match": "\\b(?:atomic_exchange|atomic_store|atomic_load|atomic_add|atomic_and|atomic_cas|atomic_max|atomic_min|atomic_xor|atomic_or)(?=[ \\t]*\\()"
 },
 {
  "name": "support.function.quern",
  "match": "\\b(?:shuffle_down|shuffle_xor|shuffle_up|block_max|block_min|block_sum|nextafter|roundeven|warp_size|axis_max|axis_min|axis_sum|copysign|isfinite|popcount|truncdiv|truncmod|warp_max|warp_min|warp_sum|ceildiv|shuffle|sigmoid|select|acosh|asinh|atan2|atanh|exp10|expm1|floor|hypot|isinf|isnan|ldexp|log10|log1p|mulhi|round|rsqrt|trunc|acos|asin|atan|cbrt|ceil|cosh|exp2|fmod|log2|rotl|sinh|sqrt|tanh|abs|clz|cos|ctz|erf|exp|fma|log|max|min|pow|sin|tan)(?=[ \\t]*\\()"
 },
 {
  "name": "entity.name.function.quern",
  "match": "\\b[A-Za-z_][A-Za-z0-9_]*(?=[ \\t]*\\()"
 },
 {
  "name": "constant.numeric.quern",
  "match": "\\b(?:0x[0-9A-Fa-f_]+|0b[01_]+|[0-9][0-9_]*(?:\\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9][0-9_]*)?)\\b"
 },
 {
  "match": "(?<=[A-Za-z0-9_)\\]])[ \\t]*(//)",
  "captures": {
   "1": {
    "name": "keyword.operator.quern"
   }
  }
 },
 {
  "name": "comment.line.double-slash.quern",
  "match": "//.*"
 },
 {
  "name": "keyword.operator.quern",
  "match": "(?:!=|\\&\\&|\\->|\\.\\.|//|<<|<=|==|>=|>>|\\|\\||!|%|\\&|\\*|\\+|\\-|/|:|<|=|>|\\?|\\^|\\||\\~)"
 }
]
