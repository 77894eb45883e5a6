// c[m, n] = a[m, :] . b[n, :]. Warps 8 to 11 copy, warps 0 to 7 multiply; three slots go round between them.
kernel gemm(a: bf16[M, K], b: bf16[N, K], c: out bf16[M, N]) require K % 8 == 0
    @warps(4, 2) @producers(4) @stages(3) @persistent @shared(49200) {
    layout main { m: l2 l3 l4 r0 w0 w1; n: r0 l0 l1 r1 r2 w2; }
    layout copies { m: l3 l4 w0 w1 r0 r1; p: r0 r1 r2 l0 l1 l2; n: l3 l4 w0 w1 r0 r1; }
    shared ring_a: bf16[3][64, 64] @swizzle(3) @offset(0)
    shared ring_b: bf16[3][64, 64] @swizzle(3) @offset(24576)
    shared full: i32[3][1, 2] @barrier @offset(49152)
    shared empty: i32[3][1, 2] @barrier @offset(49176)
    var copied, used: i32 = 0
    let p = range(64) @tile(64) @exact
    parallel m in tile(M) @tile(64), n in tile(N) @tile(64) {
        let trips = (K + 63) / 64
        role load(8, 4) @registers(40) {
            for i in each(trips) {
                let q = copied + i
                let s = q % 3
                await(empty[s], q / 3 - 1)
                copy(ring_a[s], a[m, i * 64 + p]) @dist(copies)
                copy(ring_b[s], b[n, i * 64 + p]) @dist(copies) @bulk
                arrive(full[s])
            }
            copied += trips
        }
        role math(0, 8) @registers(208) {
            var acc: f32[m, n] = 0
            for i in each(trips) {
                let q = used + i
                await(full[q % 3], q / 3)
                acc = mma(acc, ring_a[q % 3], ring_b[q % 3])
                mma_commit()
                mma_wait(1)
                if i >= 1 {
                    arrive(empty[(q + 2) % 3])
                }
            }
            mma_wait(0)
            if trips >= 1 {
                arrive(empty[(used + trips - 1) % 3])
            }
            used += trips
            c[m, n] = acc
        }
    }
}
