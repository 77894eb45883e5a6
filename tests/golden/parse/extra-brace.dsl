kernel k(x: f32[T]) {
    let a = 1
}
}
kernel l(x: f32[T]) {
    let b = *
}
