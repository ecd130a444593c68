# SPDX-License-Identifier: Apache-2.0
# Writes a table of texts as C: cmake -DOUT=FILE -DTEXTS=A.qn|B.qn -P embed_texts.cmake. The bytes are numbers, because
# compilers bound the length of string literals.
string(REPLACE "|" ";" TEXTS "${TEXTS}")
set(arrays "// Made by the build.\ntypedef struct embedded_text {\n  const char* name;\n  const char* data;\n  size_t size;\n} embedded_text_t;\n")
set(table "static const embedded_text_t texts[] = {\n")
foreach(file ${TEXTS})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REPLACE "0x0a," "0x0a,\n" bytes "${bytes}")
  string(APPEND arrays "static const unsigned char text_${name}[] = {\n${bytes}};\n")
  string(APPEND table "    {\"${name}\", (const char*)text_${name}, sizeof text_${name}},\n")
endforeach()
file(WRITE ${OUT} "${arrays}${table}};\n")
