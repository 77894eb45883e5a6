kernel k(x: f32[T]) {
    layout main { t: r0 1; }
    layout { t: r0; }
    layout copy { t r0 }
    let a = 1
}
