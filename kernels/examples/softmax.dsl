// Softmax along the rows of a matrix, for rows of any length.
//
// A row that fits one tile is softmax(x[m, n], n) with let n = range(N) and `require N <= ...`. These kernels need no bound:
// they walk the row tile by tile. Positions past the end of the row are masked by themselves: loads give 0 there, but
// reductions leave them out and stores do not happen.

// y[m, n] = e^(x[m, n] - max) / sum, max and sum over row m. Three passes: the maximum, the sum, the result.
kernel row_softmax(x: f32[M, N], y: out f32[M, N]) {
    parallel m in tile(M) {
        var largest: f32[m] = -inf
        for n in tile(N) {
            largest = max(largest, reduce_max(x[m, n], n))
        }
        var total: f32[m] = 0
        for n in tile(N) {
            total += reduce_sum(exp(x[m, n] - largest), n)
        }
        for n in tile(N) {
            y[m, n] = exp(x[m, n] - largest) / total
        }
    }
}

// The same in two passes: the first keeps a sum that belongs to the largest value so far, and scales it down when a
// larger one comes. bf16 in and out; everything in between is f32.
kernel row_softmax_online(x: bf16[M, N], y: out bf16[M, N]) {
    parallel m in tile(M) {
        var largest: f32[m] = -inf
        var total: f32[m] = 0
        for n in tile(N) {
            let v = f32(x[m, n])
            let now = max(largest, reduce_max(v, n))
            total = total * exp(largest - now) + reduce_sum(exp(v - now), n)
            largest = now
        }
        for n in tile(N) {
            y[m, n] = exp(x[m, n] - largest) / total
        }
    }
}
