kernel k(y: out f32[T]) {
    parallel i in each(), t in tile() {
        for j in each() { y[t] = 1 }
        let e = range()
    }
}
