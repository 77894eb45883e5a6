type act=bf16;type b = act

// Not a doc comment: a blank line follows.

// The first line.
//
//   Indented, and the last.
kernel k( x:act[T,3] , y :out f32[T], z: inout i32[N], m: tile_map[N],
          n: i32 ) require T%8==0,
                           T <= 4
  @variant(a) @warps(2,4) @swap
{
  layout main { rows: l2 l3 r0
    cols: w0 w1; k:; }
  layout copy0 { rows: r0 }
  let a = 1
}
kernel empty() { } kernel j() { }
schedule k for sm_90a { rows 128  cols 128;k 64
  stages 4 warps 2x4+1
  persistent
  swap mma m16n8k16 }
schedule k.small for sm_80,gfx942{}
