// swift-tools-version: 6.2
import PackageDescription

// What the two clients share. They are packages of their own, so that each is built with what it needs alone.
let package = Package(
    name: "asking",
    products: [.library(name: "Asking", targets: ["Asking"])],
    targets: [.target(name: "Asking")]
)
