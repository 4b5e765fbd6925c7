import Foundation

/// Style rules that a program can check. Each function returns its violations as `path:line: problem`.
enum Rules {
    /// Maximum number of lines of a file.
    static let maximumLines = 600

    /// Modules that each target may import besides the standard library. Every target needs a row.
    static let imports: [String: Set<String>] = [
        "CLibZMQ": [], "CLibCurl": [], "CLibIDN2": [], "CLibPSL": [], "CLibCares": [], "CLibCrypto": [],
        "CLibSQLite": [], "CLinux": [], "CLoader": [], "CSandbox": [],
        "CDecompression": [], "CBuild": [],
        "ZeroMQ": ["CLibZMQ", "Glibc"],
        "Curl": ["CLibCurl", "Glibc"],
        "Cares": ["CLibCares", "Glibc"],
        "IDN2": ["CLibIDN2", "Glibc"],
        "PSL": ["CLibPSL"],
        "RESP": [],
        "TOML": [],
        "LibCrypto": ["CLibCrypto", "Glibc"],
        "SQLite": ["CLibSQLite"],
        "Decompression": ["CDecompression"],
        "EarshotLoop": ["CLinux", "CSandbox", "Glibc", "Synchronization", "DequeModule", "HeapModule"],
        "ZMTP": ["EarshotLoop", "DequeModule"],
        "EarshotWire": [],
        "EarshotHTTP": ["EarshotWire"],
        "EarshotCore": ["EarshotWire", "EarshotHTTP", "DequeModule", "HeapModule", "OrderedCollections"],
        "EarshotQueries": ["EarshotCore", "EarshotHTTP", "EarshotWire", "HeapModule"],
        "EarshotDisk": ["EarshotLoop", "EarshotWire", "LibCrypto", "Dispatch", "Glibc", "Synchronization"],
        "EarshotDurable": ["EarshotLoop", "EarshotDisk", "SQLite", "Glibc"],
        "EarshotCache": [
            "EarshotHTTP", "EarshotLoop", "EarshotDisk", "LibCrypto", "SQLite", "Dispatch", "Glibc", "Synchronization",
        ],
        "EarshotCluster": ["EarshotCore", "EarshotHTTP", "EarshotWire", "EarshotLoop", "RESP", "LibCrypto"],
        "EarshotBroker": [
            "EarshotCache", "EarshotCluster", "EarshotDurable", "EarshotDisk", "EarshotQueries", "EarshotCore",
            "EarshotHTTP", "EarshotWire", "EarshotLoop", "ZMTP", "IDN2", "PSL", "LibCrypto", "Logging",
            "Glibc",
            "DequeModule", "HeapModule", "OrderedCollections", "Synchronization",
        ],
        "EarshotWorker": [
            "EarshotHTTP", "EarshotWire", "EarshotLoop", "ZMTP", "Curl", "Cares", "LibCrypto", "Decompression",
            "Logging",
            "Glibc",
            "DequeModule", "HeapModule", "OrderedCollections", "Synchronization",
        ],
        "EarshotGateway": [
            "EarshotCore", "EarshotWire", "EarshotLoop", "ZMTP", "ZeroMQ", "Logging", "Glibc", "DequeModule",
        ],
        "EarshotClient": [
            "EarshotHTTP", "EarshotWire", "EarshotLoop", "ZMTP", "ZeroMQ", "Glibc", "DequeModule", "OrderedCollections",
            "Synchronization",
        ],
        "EarshotSimulation": ["EarshotQueries", "EarshotCore", "EarshotWire", "DequeModule", "HeapModule"],
        "EarshotFuzz": [
            "EarshotQueries", "EarshotCore", "EarshotClient", "EarshotGateway", "EarshotWeb", "EarshotWire",
            "EarshotLoop", "ZMTP", "Decompression", "RESP", "TOML", "Glibc",
        ],
        "earshot-lab": [
            "EarshotSimulation", "EarshotQueries", "EarshotCore", "EarshotClient", "EarshotWire", "EarshotLoop",
            "LibCrypto", "ArgumentParser", "Glibc",
        ],
        "EarshotWeb": ["EarshotClient", "EarshotCore", "EarshotHTTP", "EarshotWire", "EarshotLoop", "ZMTP", "Glibc"],
        "earshot-web": ["EarshotWeb", "EarshotClient", "EarshotLoop", "CBuild", "ArgumentParser", "Glibc"],
        "earshot": [
            "EarshotBroker", "EarshotCache", "EarshotCluster", "EarshotDisk", "EarshotWorker", "EarshotGateway",
            "EarshotClient", "EarshotCore", "EarshotHTTP", "EarshotWire", "EarshotLoop", "TOML", "ZeroMQ",
            "LibCrypto",
            "CBuild",
            "ArgumentParser", "Logging",
            "Glibc", "Synchronization",
        ],
    ]

    /// Targets of pure decision code: no clock, output, concurrency or manual memory management.
    static let pure: Set = ["EarshotWire", "EarshotCore", "EarshotQueries", "EarshotHTTP", "RESP", "TOML"]

    /// Files of pure targets with manual memory management: a small type with tests, and measured, and those that pass on its
    /// addresses.
    static let handmade: Set = [
        "Sources/EarshotCore/Storage/RecordStorage.swift", "Sources/EarshotCore/Storage/Slab.swift",
        "Sources/EarshotCore/Records/RequestBook.swift",
    ]

    /// Targets with public declarations that other targets read.
    static let libraries: Set = [
        "ZeroMQ", "Curl", "Cares", "IDN2", "PSL", "RESP", "LibCrypto", "SQLite", "Decompression", "EarshotLoop",
        "ZMTP",
        "EarshotWire", "EarshotHTTP", "EarshotCluster",
        "EarshotCore", "EarshotQueries",
        "EarshotDisk", "EarshotCache", "EarshotDurable", "EarshotBroker", "EarshotWorker", "EarshotClient",
        "EarshotGateway", "EarshotWeb",
    ]

    /// Imports that the table above does not permit for the file's target.
    static func forbiddenImports(_ file: SourceFile) -> [String] {
        guard let target = file.target, let allowed = imports[target] else {
            return ["\(file.path):1: its target is not in the table of imports"]
        }
        return file.imports.filter { !allowed.contains($0.module) }
            .map { "\(file.path):\($0.line): \(target) may not import \($0.module)" }
    }

    /// A file with more than `maximumLines` lines.
    static func tooLong(_ file: SourceFile) -> [String] {
        let count = file.lines.count - (file.lines.last == "" ? 1 : 0)
        return count > maximumLines ? ["\(file.path):1: \(count) lines, more than \(maximumLines)"] : []
    }

    /// Assertions that the compiler cannot check, without a comment above that gives the reason.
    static func unexplained(_ file: SourceFile) -> [String] {
        let patterns = [
            // Patterns to search for. This file uses only `try!`, below, with its reason above it.
            #"\btry!"#, #"\bfatalError\("#, #"@unchecked\s+Sendable"#, #"nonisolated\(unsafe\)"#, #"\bas!"#,
        ]
        return matches(patterns, in: file.code, of: file).filter { !file.hasCommentAbove($0.index) }
            .map { "\(file.path):\($0.index + 1): \($0.found) without a comment above that says why" }
    }

    /// Markers of unfinished work.
    static func unfinished(_ file: SourceFile) -> [String] {
        let words = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]
        return matches(words.map { #"\b\#($0)\b"# }, in: file.lines, of: file)
            .map { "\(file.path):\($0.index + 1): \($0.found)" }
    }

    /// Calls that wait for a duration instead of an event.
    static func sleeps(_ file: SourceFile) -> [String] {
        // Delays that a test requests from its origin server are faults under test.
        guard file.path != "Tests/Integration/support/faults.py" else { return [] }
        return matches([#"\b(u|nano)?sleep\("#, #"\bsleep\("#], in: file.code, of: file)
            .map { "\(file.path):\($0.index + 1): \($0.found) waits for time" }
    }

    /// Sources of nondeterminism or side effects in a pure target.
    static func impure(_ file: SourceFile) -> [String] {
        guard let target = file.target, pure.contains(target) else { return [] }
        let memory = handmade.contains(file.path) ? [] : [#"\bunsafe\b"#, #"\bUnsafe\w+"#]
        let patterns =
            memory + [
                #"\basync\b"#, #"\bawait\b"#, #"\bTask\b"#, #"\bprint\("#,
                #"\b(Continuous|Suspending)Clock\b"#, #"\bSystemRandomNumberGenerator\b"#, #"\.random\(in:[^,)]*\)"#,
            ]
        return matches(patterns, in: file.code, of: file)
            .map { "\(file.path):\($0.index + 1): \($0.found) in a pure target" }
    }

    /// Files outside the core that may use Swift's hashing, which is seeded per process, because its values stay inside one.
    static let seeded: Set = [
        // Tables of connections and of URLs in memory, and the comparison of two requests under one ID.
        "Sources/Curl/SocketTable.swift", "Sources/EarshotHTTP/URL/FetchURL.swift",
        "Sources/EarshotWire/Fields/Fetch.swift", "Sources/EarshotWire/Fields/FieldVisitor.swift",
    ]

    /// A seeded hash where digests for other processes are made. The core has many tables in memory; tests hold its
    /// digests to known values.
    static func seededHashes(_ file: SourceFile) -> [String] {
        guard file.target != "EarshotCore", !seeded.contains(file.path) else { return [] }
        return matches([#"\bHasher\("#, #"\bvar hasher: Hasher\b"#, #"\.hashValue\b"#], in: file.code, of: file)
            .map { "\(file.path):\($0.index + 1): \($0.found) differs in each process" }
    }

    /// Handles of records that are made outside the storage of the core: only an owner of records knows which exist.
    static func madeHandles(_ file: SourceFile) -> [String] {
        // An entry of a delivery window packs the handles of two kinds of records into one word.
        let packed = "Sources/EarshotCore/Delivery/DueTerminal.swift"
        guard file.target == "EarshotCore", !file.path.hasPrefix("Sources/EarshotCore/Storage/"), file.path != packed
        else { return [] }
        return matches([#"\bHandle(<[\w.]+>)?\((place|index):"#, #"\.init\((place|index):"#], in: file.code, of: file)
            .map { "\(file.path):\($0.index + 1): \($0.found)…) makes a handle" }
    }

    /// Absolute paths of one machine.
    static func machinePaths(_ file: SourceFile) -> [String] {
        let folders = ["work", "home", "root", "farm", "Users", "tmp"].joined(separator: "|")
        return matches([#"(?<![\w.}$)/])/("# + folders + #")/\w+"#], in: file.lines, of: file)
            .map { "\(file.path):\($0.index + 1): \($0.found) is a path of a machine" }
    }

    /// The name of the program where a command or an import would load a Python package. On the package index it
    /// belongs to another project; ours is `earshot-bus`, imported as `earshot_bus`.
    static func foreignPackages(_ file: SourceFile) -> [String] {
        let patterns = [
            #"\b(pip\w*|uv|poetry|conda)\b.*\b(install|add|download)\b.*[\s'"`]earshot(?![\w./-])"#,
            #"\bearshot\[[a-z]"#,
            #"-m['",\s]+earshot(?![\w-])"#, #"(?<!@testable )\bimport earshot(?![\w-])"#,
            #"\bfrom earshot(\.\w+)* import\b"#, #"^name = "earshot"$"#,
        ]
        return matches(patterns, in: file.lines, of: file)
            .map { "\(file.path):\($0.index + 1): \($0.found) names the Python package of another project" }
    }

    /// Public declarations without a doc comment. Exempt: initializers that cannot fail, properties with a type that
    /// states unit and range, and witnesses of standard protocols.
    static func undocumented(_ file: SourceFile) -> [String] {
        guard let target = file.target, libraries.contains(target) else { return [] }
        return file.code.enumerated().filter { index, line in
            // The substring test comes first: the regular expression takes a thousand times as long.
            (line.contains("public") || line.contains("open")) && line.contains(publicDeclaration) && needsWords(line)
                && !file.hasCommentAbove(index)
        }.map { "\(file.path):\($0.offset + 1): public and without a doc comment: \($0.element.trimmed)" }
    }

    private static func needsWords(_ line: String) -> Bool {
        if line.contains(witness) { return false }
        if line.contains(/\binit\b/) { return line.contains(/\binit\?|\bthrows\b/) }
        if line.contains(/\b(var|let)\s/) { return line.contains(plainType) && !line.contains(unitInName) }
        return true
    }

    private static var publicDeclaration: Regex<Substring> {
        /^\s*(?:@\w+(?:\([^)]*\))?\s+)*(?:public|open(?=\s+(?:class|func|var|subscript)\b))\s+(?!import\b|extension\b)/
    }

    private static var witness: Regex<Substring> {
        /\bfunc\s+(?:==|<|~=|hash\(into|encode\(to|makeIterator\(\)|next\(\))|\b(?:var|let)\s+(?:description|rawValue)\b|\binit\(from\b/
    }

    private static var unitInName: Regex<Substring> {
        /\b(?:var|let)\s+\w*(?:[Mm]illiseconds|[Nn]anoseconds|[Ss]econds|[Bb]ytes)\b/
    }

    /// A number or string, by annotation or literal: its type states neither unit nor range.
    private static var plainType: Regex<Substring> {
        /\b(?:var|let)\s+\w+(?::\s*\[?(?:U?Int\d*|Double|Float|String|Substring)\b|\s*=\s*["\d-])/
    }

    private static func matches(
        _ patterns: [String], in lines: [String], of file: SourceFile
    ) -> [(index: Int, found: String)] {
        // All patterns are constants of this file, so an invalid one is a programming error.
        let expression = try! NSRegularExpression(pattern: patterns.joined(separator: "|"))
        return lines.enumerated().compactMap { index, line in
            let whole = NSRange(line.startIndex..., in: line)
            guard let match = expression.firstMatch(in: line, range: whole), let range = Range(match.range, in: line)
            else { return nil }
            return (index, String(line[range]))
        }
    }
}
