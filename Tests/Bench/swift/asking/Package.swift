// swift-tools-version: 6.2
import PackageDescription

// What the two clients share. They are packages of their own: targets of one name, here Crypto, cannot be in one graph.
let package = Package(
    name: "asking",
    products: [.library(name: "Asking", targets: ["Asking"])],
    targets: [.target(name: "Asking")]
)
