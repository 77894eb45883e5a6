kernel k(x: f32[T], y: out f32[T]) {
    let a = ((b)) + (c * d) - (e - (f - g))
    let h = b < (c & d) | (e < f) & g ^ i
    let j = -(b + c) * !d[1 + 2, (3)] << (1 + 2)
    let l = - - b - -c
    let m = (b == c) == (d)
    let n = b % (c / d) / e
}
