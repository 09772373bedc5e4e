//! The services that the tests and examples call: a greeter, and an echo with all four kinds of call.

tonic::include_proto!("steadfast.test");
