kernel k(x: f32[T], y: out f32[T]) {
    let a = "text"
    let b = "not closed
    let c = 'c'
}
