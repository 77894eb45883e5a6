kernel k(x: f32[T]) {
    for i in each(4) {
        let b = 1
    }
