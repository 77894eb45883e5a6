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

schedule gemm for sm_90a {
    m 64
    n 64
    k 32
    stages 3
    warps 2x2
}

// The ring: filled ahead, then per trip one wait, one barrier, copies for later, products; nothing left over.
// CHECK: .entry gemm
// CHECK: cp.async.cg.shared.global
// CHECK: cp.async.commit_group
// CHECK: cp.async.wait_group 1
// CHECK: bar
// CHECK: cp.async.cg.shared.global
// CHECK: cp.async.commit_group
// CHECK: ldmatrix.sync
// CHECK: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK: cp.async.wait_group 0
// CHECK: cvt.rn.bf16x2.f32
// CHECK: st.global
// CHECK-NOT: mma.sync
// CHECK-NOT: .local
