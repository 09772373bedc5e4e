//! Small programs to read and to run; see the `examples` folder of this package.
