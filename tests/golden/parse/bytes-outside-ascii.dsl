kernel k(x: f32[T], y: out f32[T]) {
    let größe = 3 // Größe
    let a = b × c
}
