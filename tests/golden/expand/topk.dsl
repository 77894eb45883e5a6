kernel best(x: f32[M, N], i: out i32[M, K], v: out f32[M, K], first: out i32[M]) require N <= 64, K <= 4 {
    parallel m in tile(M) {
        let n = range(N)
        let k = range(K)
        let row = x[m, n]
        let ids = topk(row, k, n)
        i[m, k] = ids
        v[m, k] = take(row, ids, n)
        first[m] = argmax(row, n)
    }
}
