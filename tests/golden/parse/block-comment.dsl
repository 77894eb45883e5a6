kernel k(x: f32[T], y: out f32[T]) {
    /* two
       lines */
    let a = /* in between */ 3
    # and this
}
