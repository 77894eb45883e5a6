// The Mixture-of-Experts layer: route -> count -> plan -> gate_up -> down -> combine.
//
//   T tokens, K experts a token, S = T * K slots (slot s = t * K + j is choice j of token t), E experts,
//   H hidden size, I expert ffn size, R = S rows (a row is one slot's copy of its token, sorted by expert),
//   L experts that have weights here (all of them, or some: map_ids), C = ceil(S / chunk),
//   N entries of the tile list: at least min(R, L) + R / block,
//   F = L, or 2 L where one tensor holds the gate and the up matrices of each expert, one after the other.
//
// Shared experts, which every token visits, are ordinary experts E..: the router adds their ids to those it chose.
// An id of -1 is a slot without work: another machine's expert (map_ids), or none.
//
// What is `early` may be read before the kernel launched before this one has finished: weights, and what was made by kernels before that.
// All tensors are row-major and contiguous. Rounding: products of bf16 or f16 are exact, sums are f32, and a value
// is rounded to `act` (nearest even) only where it is stored: h, d and y.

type act = bf16

// p = softmax(logits[t, :]);  ids[t, :] = the `topk` experts with the largest p + bias, larger first, lower index on ties;
// weights[t, j] = scale * p[ids[t, j]], divided by their sum over j (plus 1e-20) if renorm != 0.
// Choices topk .. K-1 are the shared experts E, E + 1, ..., of weight 1.
kernel route_softmax(logits: f32[T, E], bias: f32[E], topk: i32, renorm: i32, scale: f32,
                     ids: out i32[T, K], weights: out f32[T, K]) require E <= 512, K <= 32 {
  parallel t in tile(T) {
    let e = range(E)
    let k = range(K)
    let p = softmax(logits[t, e], e)
    let i = topk(p + bias[e], k, e)
    let w = select(k < topk, take(p, i, e), 0.)
    let total = reduce_sum(w, k) + 1e-20
    ids[t, k] = select(k < topk, i, E + k - topk)
    weights[t, k] = select(k < topk, select(renorm != 0, w / total, w) * scale, 1.)
  }
}

// As route_softmax, with p = 1 / (1 + e^-logits).
kernel route_sigmoid(logits: f32[T, E], bias: f32[E], topk: i32, renorm: i32, scale: f32,
                     ids: out i32[T, K], weights: out f32[T, K]) require E <= 512, K <= 32 {
  parallel t in tile(T) {
    let e = range(E)
    let k = range(K)
    let p = sigmoid(logits[t, e])
    let i = topk(p + bias[e], k, e)
    let w = select(k < topk, take(p, i, e), 0.)
    let total = reduce_sum(w, k) + 1e-20
    ids[t, k] = select(k < topk, i, E + k - topk)
    weights[t, k] = select(k < topk, select(renorm != 0, w / total, w) * scale, 1.)
  }
}

// As those two (use_sigmoid), but only experts of the `keep` best of G groups of E / G neighbours are chosen. A group is worth its
// largest p + bias, or the sum of its two largest (pair != 0); of equal groups the lower index is better.
kernel route_grouped(logits: f32[T, E], bias: f32[E], topk: i32, renorm: i32, scale: f32, use_sigmoid: i32, groups: i32,
                     keep: i32, pair: i32, ids: out i32[T, K], weights: out f32[T, K])
    require E <= 512, K <= 32 {
  parallel t in tile(T) {
    let e = range(E)
    let k = range(K)
    let l = logits[t, e]
    let p = select(use_sigmoid != 0, sigmoid(l), softmax(l, e))
    let score = p + bias[e]
    let g = range(32)
    let group = e / (E / groups)
    var worth: f32[t, g] = -inf
    for n in each(groups) {
      let mine = select(group == n, score, -inf)
      let best = reduce_max(mine, e)
      let second = reduce_max(select(e == argmax(mine, e), -inf, mine), e)
      worth = select(g == n, best + select(pair != 0, second, 0.), worth)
    }
    var mask: i32[t, e] = 0
    for n in each(keep) {
      let chosen = argmax(worth, g)
      mask = select(group == chosen, 1, mask)
      worth = select(g == chosen, -inf, worth)
    }
    let i = topk(select(mask != 0, score, -inf), k, e)
    let w = select(k < topk, take(p, i, e), 0.)
    let total = reduce_sum(w, k) + 1e-20
    ids[t, k] = select(k < topk, i, E + k - topk)
    weights[t, k] = select(k < topk, select(renorm != 0, w / total, w) * scale, 1.)
  }
}

// weights[t, j] = sigmoid(x[t, :] . gate[:]) for the shared experts j = topk .. K-1.
kernel shared_gate(x: act[T, H], gate: act[H], topk: i32, weights: inout f32[T, K]) require K <= 32, H % 8 == 0, H <= 32768 {
  parallel t in tile(T) {
    let j = range(K)
    var sum: f32[t] = 0
    for h in tile(H) {
      sum += reduce_sum(x[t, h] * gate[h], h)
    }
    weights[t, select(j < topk, -1, j)] = sigmoid(sum)
  }
}

// local[s] = map[ids[s]]: where each expert lies on this machine, -1: not here. Ids outside 0..G-1 give -1.
kernel map_ids(ids: i32[S], map: i32[G], local: out i32[S]) {
  parallel s in tile(S) {
    let id = ids[s]
    local[s] = select((id >= 0) & (id < G), map[id], -1)
  }
}

// counts[c, e] = how many slots of chunk c (slots c * chunk up to (c + 1) * chunk) chose expert e.
// An id outside 0..L-1 is counted nowhere: its slot takes no part in the layer.
kernel count(ids: i32[S], chunk: i32, counts: out i32[C, L]) require L <= 512 {
  parallel c in each(C) {
    let e = range(L)
    var n: i32[e] = 0
    for s in tile(c * chunk, min((c + 1) * chunk, S)) {
      n += reduce_sum(i32(ids[s] == e), s)
    }
    counts[c, e] = n
  }
}

// The permutation that sorts slots by expert, stable, and the list of row tiles for gate_up and down.
//   first[e]    = sum over e' < e of total[e']             first row of expert e
//   slot_row[s] = first[id] + (earlier slots with that id) row of slot s; -1 if its id is outside 0..L-1
//   row_token[slot_row[s]] = s / choices                   the token that a row copies (choices: K)
//   tiles[n]    = (expert, first row, rows <= block, 0), expert by expert; rows = 0 past the last tile
// Every block adds up the counts of the chunks before its own, so chunks need no order among blocks.
kernel plan(ids: i32[S], counts: i32[C, L], chunk: i32, choices: i32, block: i32,
            slot_row: out i32[S], row_token: out i32[R], tiles: out i32[N, 4]) require L <= 512 {
  parallel c in each(C) {
    let e = range(L)
    var total, before: i32[e] = 0
    for q in tile(C) {
      let n = counts[q, e]
      total += reduce_sum(n, q)
      before += reduce_sum(select(q < c, n, 0), q)
    }
    let first = scan_sum(total, e) - total
    var next: i32[e] = first + before
    for s in tile(c * chunk, min((c + 1) * chunk, S)) {
      let id = ids[s]
      let hit = id == e
      let rank = scan_sum(i32(hit), s)
      let row = reduce_sum(select(hit, next + rank - 1, 0), e)
      let place = select((id >= 0) & (id < L), row, -1)
      slot_row[s] = place
      row_token[place] = s / choices
      next += reduce_sum(i32(hit), s)
    }
    if c == 0 {
      let count = (total + block - 1) / block
      let last = scan_sum(count, e)
      let start = last - count
      let j = range(4)
      for n in tile(N) {
        let mine = (start <= n) & (n < last)
        let skip = (n - start) * block
        let expert = reduce_sum(select(mine, e, 0), e)
        let row = reduce_sum(select(mine, first + skip, 0), e)
        let rows = reduce_sum(select(mine, min(total - skip, block), 0), e)
        tiles[n, j] = select(j == 0, expert, select(j == 1, row, select(j == 2, rows, 0)))
      }
    }
  }
}

// h[r, i] = silu(x[t] . w_gate[e, i]) * (x[t] . w_up[e, i]) for every row r of a tile of expert e, t = row_token[r].
// Matrices apart: step 1, up 0. Both in one tensor, given twice: step 2, up 1.
kernel gate_up(x: act[T, H], w_gate: act[F, I, H], w_up: act[F, I, H], step: i32, up: i32, row_token: i32[R],
               tiles: tile_map[N], h: out act[R, I]) require H % 8 == 0, I % 8 == 0, H <= 32768, I <= 65536 {
  parallel (e, rows) in tiles, cols in tile(I) {
    let t = row_token[rows]
    var g, u: f32[rows, cols] = 0
    for k in tile(H) {
      let a = x[t, k]
      g += dot(a, w_gate[e * step, cols, k])
      u += dot(a, w_up[e * step + up, cols, k])
    }
    h[rows, cols] = silu(g) * u
  }
}

// As gate_up with gelu (its tanh form) in place of silu.
kernel gate_up_gelu(x: act[T, H], w_gate: act[F, I, H], w_up: act[F, I, H], step: i32, up: i32, row_token: i32[R],
                    tiles: tile_map[N], h: out act[R, I]) require H % 8 == 0, I % 8 == 0, H <= 32768, I <= 65536 {
  parallel (e, rows) in tiles, cols in tile(I) {
    let t = row_token[rows]
    var g, u: f32[rows, cols] = 0
    for k in tile(H) {
      let a = x[t, k]
      g += dot(a, w_gate[e * step, cols, k])
      u += dot(a, w_up[e * step + up, cols, k])
    }
    h[rows, cols] = gelu(g) * u
  }
}

// As gate_up with biases and h = g sigmoid(alpha g) (u + 1), g = min(gate, limit), u = clamp(up, -limit, limit).
kernel gate_up_clamp(x: act[T, H], w_gate: act[F, I, H], w_up: act[F, I, H], b_gate: act[F, I], b_up: act[F, I], alpha: f32, limit: f32,
                     step: i32, up: i32, row_token: i32[R],
                     tiles: tile_map[N], h: out act[R, I]) require H % 8 == 0, I % 8 == 0, H <= 32768, I <= 65536 {
  parallel (e, rows) in tiles, cols in tile(I) {
    let t = row_token[rows]
    var g, u: f32[rows, cols] = 0
    for k in tile(H) {
      let a = x[t, k]
      g += dot(a, w_gate[e * step, cols, k])
      u += dot(a, w_up[e * step + up, cols, k])
    }
    let gb = g + b_gate[e * step, cols]
    let ub = u + b_up[e * step + up, cols]
    let gc = select(gb > limit, limit, gb)
    let uc = select(ub > limit, limit, select(ub < -limit, -limit, ub))
    h[rows, cols] = gc * sigmoid(alpha * gc) * (uc + 1.)
  }
}

// d[r, j] = h[r, :] . w_down[e, j, :] for every row r of a tile of expert e.
kernel down(h: act[R, I], w_down: early act[L, H, I], tiles: early tile_map[N], d: out act[R, H])
    require H % 8 == 0, I % 8 == 0, H <= 32768, I <= 65536 {
  parallel (e, rows) in tiles, cols in tile(H) {
    var acc: f32[rows, cols] = 0
    for k in tile(I) {
      acc += dot(h[rows, k], w_down[e, cols, k])
    }
    d[rows, cols] = acc
  }
}

// As down, plus b_down[e, j].
kernel down_bias(h: act[R, I], w_down: early act[L, H, I], b_down: early act[L, H], tiles: early tile_map[N], d: out act[R, H])
    require H % 8 == 0, I % 8 == 0, H <= 32768, I <= 65536 {
  parallel (e, rows) in tiles, cols in tile(H) {
    var acc: f32[rows, cols] = 0
    for k in tile(I) {
      acc += dot(h[rows, k], w_down[e, cols, k])
    }
    d[rows, cols] = acc + b_down[e, cols]
  }
}

// y[t, :] = sum over j = 0 .. K-1 of weights[t, j] * d[slot_row[t, j], :]; a slot_row of -1 adds nothing.
kernel combine(d: act[R, H], slot_row: early i32[T, K], weights: early f32[T, K], y: out act[T, H])
    require H % 8 == 0, H <= 32768, K <= 32 {
  parallel t in tile(T), c in tile(H) {
    var acc: f32[t, c] = 0
    for j in tile(K) {
      acc += reduce_sum(weights[t, j] * d[slot_row[t, j], c], j)
    }
    y[t, c] = acc
  }
}
