// How fast the device reads memory: the ceiling that `moerun bench` measures. M rows of 4096 numbers, 16 KB each, one row a
// block: enough blocks and enough loads of 16 bytes in flight to fill the memory's pipe.

// x[m, c] = (4096 m + c) * 40503: numbers that are not all alike, whose sums are known.
kernel read_fill(x: out i32[M, 4096]) {
  parallel m in each(M) {
    let c = range(4096)
    x[m, c] = (m * 4096 + c) * 40503
  }
}

// y[m] = the sum of row m: every byte is read once, 1 of 4096 is written.
kernel read_sum(x: i32[M, 4096], y: out i32[M]) {
  parallel m in each(M) {
    let c = range(4096)
    y[m] = reduce_sum(x[m, c], c)
  }
}

schedule read_sum for sm_80, sm_90a, sm_100a, gfx942, gfx950 { warps 4 }
