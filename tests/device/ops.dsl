// Every operation on a device against eval: `tests/device/run.sh` runs each kernel by `moerun check`. Outputs have a row an
// operation. Sizes are free and odd when run, so that the last tiles are ragged.

kernel reals(a: f32[N], b: f32[N], y: out f32[20, N]) {
    parallel n in tile(N) {
        let x = a[n]
        let z = b[n]
        y[0, n] = x + z
        y[1, n] = x - z
        y[2, n] = x * z
        y[3, n] = x / (z * z + 0.5)
        y[4, n] = min(x, z)
        y[5, n] = max(x, z)
        y[6, n] = -x
        y[7, n] = abs(x)
        y[8, n] = floor(x * 7)
        y[9, n] = exp2(x)
        y[10, n] = log2(abs(x) + 0.125)
        y[11, n] = sqrt(abs(x))
        y[12, n] = rsqrt(abs(x) + 0.5)
        y[13, n] = rcp(abs(z) + 0.5)
        y[14, n] = exp(z)
        y[15, n] = silu(x)
        y[16, n] = tanh(x)
        y[17, n] = gelu(x)
        y[18, n] = select(x < z, sigmoid(x), log(abs(z) + 1))
        y[19, n] = f32(bf16(x)) + f32(f16(z))
    }
}

kernel integers(p: i32[N], q: i32[N], y: out i32[20, N]) {
    parallel n in tile(N) {
        let a = p[n]
        let b = q[n]
        y[0, n] = a + b
        y[1, n] = a - b
        y[2, n] = a * b
        y[3, n] = a / b
        y[4, n] = a % b
        y[5, n] = min(a, b)
        y[6, n] = max(a, b)
        y[7, n] = -a
        y[8, n] = abs(a)
        y[9, n] = a & b
        y[10, n] = a | b
        y[11, n] = a ^ b
        y[12, n] = ~a
        y[13, n] = a << (b & 7)
        y[14, n] = a >> 3
        y[15, n] = i32(a < b) + 2 * i32(a == b) + 4 * i32(a >= b)
        y[16, n] = i32((a > 0) & !(b > 0))
        y[17, n] = i32(f32(a) * 1.75)
        y[18, n] = a / 7 + a % 7
        y[19, n] = order(f32(a)) / 65536
    }
}

// One block: along both axes, over registers, lanes and warps.
kernel axes(x: i32[M, N], sums: out i32[M], largest: out i32[N], smallest: out i32[M], down: out i32[M, N],
            right: out i32[M, N]) require M <= 64, N <= 64 {
    let m = range(M)
    let n = range(N)
    let v = x[m, n]
    sums[m] = reduce_sum(v, n)
    largest[n] = reduce_max(v, m)
    smallest[m] = reduce_min(v, n)
    down[m, n] = scan_sum(v, m)
    right[m, n] = scan_sum(v, n)
}

kernel real_axes(x: f32[M, N], y: out f32[4, M], p: out f32[M, N]) require N <= 700 {
    parallel m in tile(M) {
        let n = range(N)
        let v = x[m, n]
        y[0, m] = reduce_sum(v, n)
        y[1, m] = reduce_max(v, n)
        y[2, m] = reduce_min(v, n)
        y[3, m] = f32(argmax(v, n))
        p[m, n] = softmax(v, n)
    }
}

kernel best(x: f32[M, N], i: out i32[M, K], v: out f32[M, K]) require N <= 300, K <= 9 {
    parallel m in tile(M) {
        let n = range(N)
        let k = range(K)
        let at = topk(x[m, n], k, n)
        i[m, k] = at
        v[m, k] = take(x[m, n], at, n)
    }
}

// Indices outside the buffers read 0 and write nothing.
kernel scatter(i: i32[N], x: f32[M], y: out f32[N], c: inout i32[M], s: inout f32[M]) {
    parallel n in tile(N) {
        let at = i[n]
        y[n] = x[at]
        atomic_add(c[at], 1)
        atomic_add(s[at], 0.5)
    }
}

// Values before an atomic sum, needed by more threads than the sum itself occupies: one block, each place added to by
// one position, so that every order gives the same. Places past the end give 0.
kernel tickets(n: inout i32[1], c: inout i32[M], s: inout f32[N], y: out i32[M, N], z: out f32[M, N])
    require M <= 16, N <= 256 {
    let i = range(M)
    let j = range(N)
    let old = atomic_add(n[0], 5)
    var sum: i32[i] = old
    for t in each(3) {
        sum += atomic_add(c[i + 2], t + 1)
    }
    y[i, j] = sum * (j + 1)
    z[i, j] = atomic_add(s[j], 0.25) + f32(i)
}

kernel control(x: i32[N], rounds: i32, y: out i32[N]) {
    parallel n in tile(N) {
        var v: i32[n] = x[n]
        var flips: i32 = 0
        for j in each(rounds) {
            if j % 3 == 0 {
                v = v * 2 + j
                flips += 1
            } else if j % 3 == 1 {
                v = v - n
            } else {
                for k in each(2, j) {
                    v += k
                }
            }
        }
        y[n] = v + flips * 1000
    }
}

// ---- products in every form
kernel plain(x: bf16[M, K], w: bf16[N, K], y: out f32[M, N]) {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 0
        for k in tile(K) {
            s += dot(x[m, k], w[n, k])
        }
        y[m, n] = s
    }
}

kernel half(x: f16[M, K], w: f16[N, K], y: out f16[M, N]) {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 0
        for k in tile(K) {
            s += dot(x[m, k], w[n, k])
        }
        y[m, n] = s
    }
}

// Rows that start at multiples of 16 bytes: copies of 16 bytes (cp.async on NVIDIA), with indices from memory, in a ring
// whose last trips lie past the end; and stores of several columns at once.
kernel aligned(x: bf16[M, K], row: i32[M], w: bf16[N, K], y: out bf16[M, N]) require K % 8 == 0, N % 8 == 0 {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 0
        for k in tile(K) {
            s += dot(x[row[m], k], w[n, k])
        }
        y[m, n] = s
    }
}

kernel aligned_half(x: f16[M, K], w: f16[N, K], y: out f32[M, N]) require K % 8 == 0 {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 0
        for k in tile(K) {
            s += dot(x[m, k], w[n, k])
        }
        y[m, n] = s
    }
}

kernel computed(x: bf16[M, K], w: bf16[N, K], b: f32[N], y: out f32[M, N]) {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 0
        for k in tile(K) {
            s += dot(bf16(x[m, k] * 0.5 + 1.0), w[n, k])
        }
        y[m, n] = s + b[n]
    }
}

kernel columns(x: bf16[M, K], w: bf16[K, N], y: out f32[M, N]) {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 0
        for k in tile(K) {
            s += dot(x[m, k], w[k, n])
        }
        y[m, n] = s
    }
}

kernel part(x: bf16[M, K], w: bf16[N, K], y: out f32[M, N]) {
    parallel m in tile(M), n in tile(N) {
        var s: f32[m, n] = 1
        for k in tile(3, K - 5) {
            s += dot(x[m, k], w[n, k])
        }
        y[m, n] = s
    }
}

kernel gram(x: bf16[M, K], y: out f32[M, M]) require M <= 32, K <= 128 {
    let m = range(M)
    let n = range(M)
    let k = range(K)
    y[m, n] = dot(x[m, k], x[n, k])
}

kernel vector(x: bf16[K], w: bf16[N, K], y: out f32[N]) {
    parallel n in tile(N) {
        var s: f32[n] = 0
        for k in tile(K) {
            s += dot(w[n, k], x[k])
        }
        y[n] = s
    }
}

// softmax(q k^T) v with the sum kept as it goes: two dots, one fed by the other.
kernel attention(q: bf16[M, D], k: bf16[N, D], v: bf16[N, D], y: out f32[M, D]) require D <= 64 {
    parallel m in tile(M) {
        let d = range(D)
        let c = range(D)
        var largest: f32[m] = -inf
        var total: f32[m] = 0
        var out: f32[m, c] = 0
        for n in tile(N) {
            let s = select(n < N, dot(q[m, d], k[n, d]) * 0.25, -inf)
            let now = max(largest, reduce_max(s, n))
            let p = exp(s - now)
            let scale = exp(largest - now)
            total = total * scale + reduce_sum(p, n)
            out = dot(out * scale, bf16(p), v[n, c])
            largest = now
        }
        y[m, c] = out / total
    }
}

// The second product has 16 columns: fewer than the warps along them could share.
kernel narrow(q: bf16[M, D], k: bf16[N, D], v: bf16[N, C], y: out f32[M, C]) require D <= 32, C <= 16 {
    parallel m in tile(M) {
        let d = range(D)
        let c = range(C)
        var out: f32[m, c] = 0
        for n in tile(N) {
            out += dot(bf16(dot(q[m, d], k[n, d])), v[n, c])
        }
        y[m, c] = out
    }
}

schedule attention for sm_80, sm_90a, sm_100a, gfx942, gfx950 {
    m 64
    n 64
    warps 2x2
}

schedule narrow for sm_80, sm_90a, sm_100a, gfx942, gfx950 {
    m 64
    n 64
    d 32
    warps 2x2
}
