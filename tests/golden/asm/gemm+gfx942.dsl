// -D M=1000 -D N=512 -D K=256
type act = bf16

kernel gemm(a: act[M, K], b: act[N, K], c: out act[M, N]) require K % 8 == 0, N % 8 == 0 {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 0
        for k in tile(K) {
            s += dot(a[m, k], b[n, k])
        }
        c[m, n] = s
    }
}

schedule gemm for gfx942 {
    m 64
    n 64
    k 32
    stages 3
    warps 2x2
}

// Loads of the next tile go out before the products of this one and are waited for after them.
// CHECK: gemm:
// CHECK: buffer_load_dwordx4
// CHECK: ds_write_b128
// CHECK: s_barrier
// CHECK: buffer_load_dwordx4
// CHECK: ds_read
// CHECK: v_mfma_f32_32x32x8_bf16
// CHECK-NOT: buffer_store_short
// CHECK: buffer_store_dwordx4
// CHECK: s_endpgm
// CHECK: .vgpr_spill_count: 0
// CHECK: .wavefront_size: 64
