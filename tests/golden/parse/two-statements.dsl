kernel k(x: f32[T], y: out f32[T]) {
    let a = 1 let b = 2
    let c = 1; let d = 2
}
