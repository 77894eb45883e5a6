schedule k { }
schedule for a { }
schedule k for a, { }
schedule k for a { rows 2x }
schedule k for a { warps 2x4+ }
schedule k for a { = }
schedule k.for for a { }
schedule k for a {
    stages 4
