# SPDX-License-Identifier: Apache-2.0
# Every sample of examples/ir runs on the interpreter and, where there is a code generator, on the
# CPU in both tiers and checked, and all agree within 1e-5.
. "${0%/*}/lib.sh"

arguments() {
  case $1 in
    saxpy) echo "--arg a=2.5 --arg x=rand:f32[37]:1 --arg y=rand:f32[37]:2" ;;
    softmax) echo "--arg x=rand:f32[5,19]:3 --arg y=zeros:f32[5,19]" ;;
    matmul_tile) echo "--arg a=rand:f32[7,21]:4 --arg b=rand:f32[21,18]:5 --arg c=zeros:f32[7,18]" ;;
    embed_layernorm)
      echo "--arg ids=rand:i64[2,4]:6 --arg words=rand:f32[10,24]:7 --arg positions=rand:f32[4,24]:8" \
        "--arg gamma=rand:f32[24]:9 --arg beta=rand:f32[24]:10 --arg eps=1e-5 --arg y=zeros:f32[2,4,24]" ;;
    transpose_shared) echo "--arg x=iota:f32[33,9] --arg y=zeros:f32[9,33]" ;;
    two_launches) echo "--arg x=rand:f32[6,11]:11 --arg y=zeros:f32[6,11]" ;;
    fir_filter) echo "--arg x=rand:i16[66]:12 --arg n=64 --arg y=zeros:i16[64]" ;;
    histogram) echo "--arg x=rand:u8[1000]:13 --arg counts=zeros:i32[256] --arg largest=zeros:i32[]" ;;
    newton_sqrt) echo "--arg x=rand:f32[17]:14 --arg y=zeros:f32[17]" ;;
    block_norm) echo "--arg x=rand:f32[3,300]:15 --arg y=zeros:f32[3]" ;;
    attention)
      echo "--arg scale=0.2 --arg q=rand:f32[1,70,3]:16 --arg k=rand:f32[1,41,3]:17" \
        "--arg v=rand:f32[1,41,3]:18 --arg y=zeros:f32[1,70,3]" ;;
    fp8_linear)
      echo "--func linear --arg x=rand:f32[5,70]:19 --arg w=rand:f8e4m3fn[70,6]:20 --arg scale=rand:f32[3,6]:21" \
        "--arg y=zeros:f32[5,6]" ;;
    philox) echo "--arg key=81985529216486895 --arg y=zeros:u32[37,4]" ;;
    split_sum) echo "--arg x=rand:f32[9000]:26 --arg y=zeros:f32[]" ;;
    prefix_sum) echo "--arg x=iota:i32[300] --arg y=zeros:i32[300]" ;;
    recurrence)
      echo "--arg a=rand:f32[3,1500]:26 --arg b=rand:f32[3,1500]:27 --arg h=zeros:f32[3,1500]" ;;
    argmax) echo "--arg logits=rand:f32[3,1500]:22 --arg token=zeros:i64[3] --arg score=zeros:f32[3]" ;;
    layernorm_welford)
      echo "--arg x=rand:f32[5,70]:23 --arg gamma=rand:f32[70]:24 --arg beta=rand:f32[70]:25 --arg eps=1e-5" \
        "--arg y=zeros:f32[5,70]" ;;
    int4_linear)
      echo "--func linear --arg x=rand:f32[5,64]:22 --arg w=rand:u4[6,64]:23 --arg scale=rand:f16[6,2]:24" \
        "--arg zero=rand:u8[6,2]:25 --arg y=zeros:f32[5,6]" ;;
    gelu)
      echo "--arg x=rand:f32[5,33]:26 --arg w=rand:f32[33,6]:27 --arg b=rand:f32[6]:28" \
        "--arg y=zeros:f32[5,6]" ;;
    sha256) echo "--arg x=rand:u8[3,70]:29 --arg digest=zeros:u8[3,32]" ;;
    bitonic_sort) echo "--arg x=rand:f32[300]:30" ;;
    topk)
      echo "--arg x=rand:f32[3,200]:31 --arg values=zeros:f32[3,5] --arg indices=zeros:i64[3,5]" ;;
    nms)
      echo "--arg boxes=rand:f32[2,40,4]:32 --arg scores=rand:f32[2,40]:33 --arg limit=0.3" \
        "--arg kept=zeros:i64[2,9] --arg count=zeros:i64[2]" ;;
    mxfp4_linear)
      echo "--func quantize --arg w=rand:f32[5,64]:34 --arg codes=zeros:f4e2m1fn[5,64]" \
        "--arg scale=zeros:u8[5,2]" ;;
    fft) echo "--arg x=rand:f32[3,32,2]:36 --arg y=zeros:f32[3,32,2]" ;;
    conv_transpose)
      echo "--arg x=rand:f32[1,2,5,6]:37 --arg taps=rand:f32[2,3,4,4]:38 --arg bias=rand:f32[3]:39" \
        "--arg y=zeros:f32[1,3,6,8]" ;;
    winograd)
      echo "--arg x=rand:f32[2,6,8]:40 --arg taps=rand:f32[3,2,3,3]:41 --arg y=zeros:f32[3,4,6]" ;;
    split_k) echo "--arg x=rand:f32[2,600]:42 --arg w=rand:f32[600,70]:43 --arg y=zeros:f32[2,70]" ;;
    flash_attention)
      echo "--arg scale=0.2 --arg q=rand:f32[1,9,64]:44 --arg k=rand:f32[1,41,64]:45" \
        "--arg v=rand:f32[1,41,64]:46 --arg y=zeros:f32[1,9,64] --arg lse=zeros:f32[1,9]" ;;
    paged_attention)
      echo "--arg scale=0.2 --arg q=rand:f32[2,4,8]:47 --arg k=rand:f32[10,16,2,8]:48" \
        "--arg v=rand:f32[10,16,2,8]:49 --arg table=rand:i32[2,3]:50 --arg length=ones:i32[2]" \
        "--arg y=zeros:f32[2,4,8]" ;;
    mixture_of_experts)
      echo "--arg x=rand:f32[9,16]:51 --arg gate=rand:f32[16,4]:52 --arg w=rand:f32[4,16,7]:53" \
        "--arg y=zeros:f32[9,7]" ;;
    *) fail "no arguments for the sample $1: add them here" ;;
  esac
}

for file in examples/ir/*.qn; do
  name=$(basename "$file" .qn)
  # shellcheck disable=SC2046
  set -- $(arguments "$name")
  expect 0 run "$file" --target interp --json "$@"
  json 'it["source"] == "compiled" and it["outputs"]'
  mv out interp.json
  $has_cpu || continue
  for options in "" "--tier fast" "--checked" "--repeat 3"; do
    # shellcheck disable=SC2086
    expect 0 run "$file" --target cpu --json $options "$@"
    python3 "$SOURCE/tests/cli/compare.py" interp.json out || fail "$name on cpu $options differs"
    checks=$((checks + 1))
  done
done

done_with samples
