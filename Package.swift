// swift-tools-version: 6.2
import PackageDescription

/// Settings of every target.
let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]

let deque = Target.Dependency.product(name: "DequeModule", package: "swift-collections")
let heap = Target.Dependency.product(name: "HeapModule", package: "swift-collections")
let ordered = Target.Dependency.product(name: "OrderedCollections", package: "swift-collections")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log", condition: .when(traits: ["Bus"]))
let arguments = Target.Dependency.product(
    name: "ArgumentParser", package: "swift-argument-parser", condition: .when(traits: ["Bus"]))

/// Settings of C targets. A package with unsafe flags cannot be a dependency, so `bin/build` adds the protection of stacks.
let fortified: [CSetting] = [.define("_FORTIFY_SOURCE", to: "2", .when(configuration: .release))]

func source(_ name: String, _ dependencies: [Target.Dependency] = []) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: settings)
}

func tests(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .testTarget(name: name, dependencies: dependencies, swiftSettings: settings)
}

/// Built only for `bin/fuzz`, which links it with libFuzzer: it has no main function.
let fuzzing =
    Context.environment["EARSHOT_FUZZ"] == nil
    ? []
    : [
        source(
            "EarshotFuzz",
            [
                "EarshotQueries", "EarshotCore", "EarshotClient", "EarshotGateway", "EarshotWeb", "EarshotWire",
                "EarshotLoop", "ZMTP",
                "Decompression", "RESP", "TOML",
                // Only targets that a Swift target names are built by `--target`.
                "CLoader",
            ])
    ]

let package = Package(
    name: "earshot",
    products: [
        .executable(name: "earshot", targets: ["earshot"]),
        .executable(name: "earshot-web", targets: ["earshot-web"]),
        .library(name: "EarshotClient", targets: ["EarshotClient"]),
    ],
    traits: [
        .trait(
            name: "Bus",
            description: "The programs of a bus. A package that uses only the library EarshotClient leaves it out."),
        .default(enabledTraits: ["Bus"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    ],
    targets: fuzzing + [
        // Loads shared libraries at run time, and notes each in the program.
        .target(name: "CLoader", cSettings: fortified),
        // C libraries: a module map and a shim header each; exceptions are noted.
        // Loads libzmq for the first connection over tcp, with own declarations instead of its header.
        .target(name: "CLibZMQ", dependencies: ["CLoader"], cSettings: fortified),
        // Loads libcurl at run time instead of linking it.
        .target(
            name: "CLibCurl", dependencies: ["CLoader"], cSettings: fortified,
            // Exports replacements that libcurl calls instead of nghttp2's functions: see http2.c.
            linkerSettings: [
                .unsafeFlags([
                    "-Xlinker", "--export-dynamic-symbol=nghttp2_session_callbacks_set_on_frame_recv_callback",
                    "-Xlinker", "--export-dynamic-symbol=nghttp2_session_mem_recv",
                    "-Xlinker", "--export-dynamic-symbol=nghttp2_session_mem_recv2",
                ])
            ]),
        // Loads libidn2 for the first internationalized host name.
        .target(name: "CLibIDN2", dependencies: ["CLoader"], cSettings: fortified),
        // Loads libpsl for the first cookie with a domain.
        .target(name: "CLibPSL", dependencies: ["CLoader"], cSettings: fortified),
        // Loads zlib, libbrotlidec and libzstd when a worker starts.
        .target(name: "CDecompression", dependencies: ["CLoader"], cSettings: fortified),
        // Landlock and seccomp.
        .target(name: "CSandbox", cSettings: [.define("_GNU_SOURCE")] + fortified),
        // Build facts that `bin/build` writes, and arguments of the program.
        .target(name: "CBuild"),
        .systemLibrary(name: "CLibCares"),
        .systemLibrary(name: "CLibCrypto"),
        .systemLibrary(name: "CLibSQLite"),
        .systemLibrary(name: "CLinux"),

        // Swift wrappers with owned handles: each is the only importer of its C module.
        source("ZeroMQ", ["CLibZMQ"]),
        source("Curl", ["CLibCurl"]),
        source("Cares", ["CLibCares"]),
        source("IDN2", ["CLibIDN2"]),
        source("PSL", ["CLibPSL"]),
        source("LibCrypto", ["CLibCrypto"]),
        source("SQLite", ["CLibSQLite"]),
        source("Decompression", ["CDecompression"]),
        source("EarshotLoop", ["CLinux", "CSandbox", deque, heap]),
        source("ZMTP", ["EarshotLoop", deque]),

        // Pure decision code, without I/O.
        source("RESP"),
        source("TOML"),
        source("EarshotWire"),
        source("EarshotHTTP", ["EarshotWire"]),
        source("EarshotCore", ["EarshotWire", "EarshotHTTP", deque, heap, ordered]),
        source("EarshotQueries", ["EarshotCore", "EarshotHTTP", "EarshotWire", heap]),

        // Shells: I/O around the cores.
        source("EarshotDisk", ["EarshotLoop", "EarshotWire", "LibCrypto"]),
        source("EarshotCache", ["EarshotHTTP", "EarshotLoop", "EarshotDisk", "LibCrypto", "SQLite"]),
        source("EarshotDurable", ["EarshotLoop", "EarshotDisk", "SQLite"]),
        .target(
            name: "EarshotCluster",
            dependencies: ["EarshotCore", "EarshotHTTP", "EarshotWire", "EarshotLoop", "RESP", "LibCrypto"],
            resources: ["common", "pass", "want", "unwant", "take", "done", "cool", "renew", "reap", "survey"].map {
                .embedInCode("Scripts/\($0).lua")
            },
            swiftSettings: settings),
        source(
            "EarshotBroker",
            [
                "EarshotQueries", "EarshotCore", "EarshotCache", "EarshotCluster", "EarshotDurable", "EarshotDisk",
                "EarshotHTTP", "EarshotWire", "EarshotLoop", "ZMTP", "IDN2", "PSL", "LibCrypto", deque, logging,
            ]),
        source(
            "EarshotWorker",
            [
                "EarshotHTTP", "EarshotWire", "EarshotLoop", "ZMTP", "Curl", "Cares", "LibCrypto", "Decompression",
                deque,
                heap, logging,
            ]),
        source("EarshotGateway", ["EarshotCore", "EarshotWire", "EarshotLoop", "ZMTP", "ZeroMQ", deque, logging]),
        source("EarshotClient", ["EarshotHTTP", "EarshotWire", "EarshotLoop", "ZMTP", "ZeroMQ", deque, ordered]),
        .executableTarget(
            name: "earshot",
            dependencies: [
                "EarshotBroker", "EarshotCache", "EarshotCluster", "EarshotDisk", "EarshotWorker", "EarshotGateway",
                "EarshotClient", "EarshotCore", "EarshotHTTP", "EarshotWire", "EarshotLoop", "TOML",
                "ZeroMQ", "LibCrypto", "CBuild", arguments, logging,
            ],
            swiftSettings: settings),

        // Metrics, health checks and the live page over HTTP: a program of its own, so that `earshot` starts no slower.
        .target(
            name: "EarshotWeb",
            dependencies: ["EarshotClient", "EarshotCore", "EarshotHTTP", "EarshotWire", "EarshotLoop", "ZMTP"],
            resources: [
                .embedInCode("Page/page.html"), .embedInCode("Page/page.css"), .embedInCode("Page/page.js"),
                .embedInCode("Page/icon.svg"), .embedInCode("API/openapi.json"),
            ],
            swiftSettings: settings),
        .executableTarget(
            name: "earshot-web",
            dependencies: ["EarshotWeb", "EarshotClient", "EarshotLoop", "CBuild", arguments],
            swiftSettings: settings),

        // Simulation of a broker and its peers in one process, for tests only; no product.
        source("EarshotSimulation", ["EarshotQueries", "EarshotCore", "EarshotWire", deque, heap]),
        .executableTarget(
            name: "earshot-lab",
            dependencies: [
                "EarshotSimulation", "EarshotQueries", "EarshotCore", "EarshotClient", "EarshotWire", "EarshotLoop",
                "LibCrypto", arguments,
            ],
            swiftSettings: settings),

        // Origin, name server and sockets for tests.
        .target(
            name: "TestPeers", dependencies: ["EarshotLoop"], path: "Tests/TestPeers", swiftSettings: settings),
        tests("EarshotWireTests", ["EarshotWire", "EarshotCore"]),
        tests("EarshotHTTPTests", ["EarshotHTTP", "EarshotWire", "EarshotCore"]),
        tests("EarshotCoreTests", ["EarshotQueries", "EarshotCore", "EarshotWire", "EarshotHTTP"]),
        tests(
            "EarshotCacheTests", ["EarshotCache", "EarshotDisk", "EarshotHTTP", "EarshotLoop", "LibCrypto", "SQLite"]),
        tests("EarshotDiskTests", ["EarshotDisk", "EarshotLoop", "EarshotWire", "LibCrypto"]),
        tests("EarshotDurableTests", ["EarshotDurable", "EarshotDisk", "EarshotLoop", "LibCrypto", "SQLite"]),
        tests("EarshotLoopTests", ["EarshotLoop"]),
        tests(
            "EarshotBrokerTests",
            [
                "EarshotBroker", "EarshotCache", "EarshotCore", "EarshotHTTP", "EarshotLoop", "EarshotWire", "ZMTP",
                logging,
            ]),
        tests("ZeroMQTests", ["ZeroMQ"]),
        tests("ZMTPTests", ["ZMTP", "ZeroMQ", "EarshotLoop"]),
        tests("CurlTests", ["Curl", "TestPeers"]),
        tests("CaresTests", ["Cares", "TestPeers"]),
        tests("IDN2Tests", ["IDN2"]),
        tests("RESPTests", ["RESP"]),
        tests("TOMLTests", ["TOML"]),
        tests(
            "EarshotClusterTests",
            [
                "EarshotCluster", "EarshotSimulation", "EarshotCore", "EarshotHTTP", "EarshotWire", "EarshotLoop",
                "RESP",
                "LibCrypto", heap,
            ]),
        tests("PSLTests", ["PSL"]),
        tests("LibCryptoTests", ["LibCrypto"]),
        tests("SQLiteTests", ["SQLite"]),
        tests("DecompressionTests", ["Decompression"]),
        tests(
            "EarshotWorkerTests",
            [
                "EarshotWorker", "EarshotHTTP", "EarshotWire", "EarshotLoop", "ZeroMQ", "ZMTP", "LibCrypto", "Curl",
                "TestPeers", logging,
            ]),
        tests("EarshotClientTests", ["EarshotClient", "EarshotWire", "EarshotLoop", "TestPeers", "ZeroMQ"]),
        tests("EarshotGatewayTests", ["EarshotGateway", "EarshotWire", "EarshotLoop", "ZMTP", "ZeroMQ", logging]),
        tests(
            "EarshotWebTests",
            ["EarshotWeb", "EarshotClient", "EarshotCore", "EarshotHTTP", "EarshotLoop", "EarshotWire"]),
        tests(
            "CommandTests",
            [
                "earshot", "earshot-web", "EarshotBroker", "EarshotClient", "EarshotCluster", "EarshotCore",
                "EarshotGateway",
                "EarshotLoop",
                "EarshotWire", "ZeroMQ", arguments,
            ]),
        tests("SimulationTests", ["EarshotSimulation", "EarshotCore", "EarshotWire"]),
        tests("ProtocolTests", ["EarshotCore", "EarshotHTTP", "EarshotWire"]),
        // Optimized, because the rules read all sources: unoptimized they take a tenth of the time of all tests.
        .testTarget(name: "TidyTests", swiftSettings: settings + [.unsafeFlags(["-O"])]),
    ]
)
