kernel k(x: f32[T]) {
    if a {
        let b = 1

kernel l(x: f32[T]) {
    let a = 
}
