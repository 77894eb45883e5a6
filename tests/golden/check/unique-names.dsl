kernel k(y: inout i32[T]) {
    parallel t in tile(T) {
        let a = t + 1
        for s in tile(4) { let a = s + t }
        for s in tile(4) { let a = s - t }
        if T == 3 { let a = t * 2 }
        y[t] += a
        y[t] -= 2
        atomic_add(y[t], 3)
    }
}
