kernel f(y: out i32[N]) {
    parallel a in tile(N), b in each(1), c in each(1), d in each(1), e in each(1), f in each(1), g in each(1), h in each(1), i in each(1) {
        y[a] = a
    }
}
