internal import ArgumentParser
internal import EarshotCache
internal import EarshotClient
internal import EarshotCore
internal import EarshotDisk
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot cache`: inspection of the stored responses.
struct CacheCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cache",
        abstract: "Inspect, verify and clear the cache.",
        discussion: """
            stat, list and verify read the files of the cache, also while a broker uses them.

              earshot cache stat
              earshot cache list
            """,
        subcommands: [Stat.self, List.self, Verify.self, Clear.self])

    /// Location of the cache.
    struct CacheLocation: ParsableArguments {
        @Option(help: ArgumentHelp("Directory of the cache.", valueName: "dir"), completion: .directory)
        var cacheFolder: String?

        @OptionGroup(title: "Bus") var place: RuntimeOptions

        func validate() throws { try PathCheck.check([("--cache-folder", cacheFolder)]) }

        func folder() throws -> CacheFolder {
            if let cacheFolder { return CacheFolder(Folder.absolute(cacheFolder)) }
            let runtime = try place.ownFolder(of: "cache")
            if place.runtime != nil { return CacheFolder(runtime.ownCache) }
            return CacheFolder(try RuntimeFolder.usualCache())
        }

        /// Returns the directory of partial bodies, which is beside the cache.
        static func parts(_ cache: CacheFolder) -> String { Folder.beside(cache.path, "parts") }
    }

    struct Stat: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show number and size of the stored responses and partial bodies.")

        @OptionGroup(title: "Output") var format: FormatOptions
        @OptionGroup(title: "Bus") var place: CacheLocation

        func run() throws {
            try conclude {
                let folder = try place.folder()
                let numbers = try CacheCommand.reading { try CacheReport(folder).numbers() }
                let parts = try CacheCommand.reading { try PartFolder.totals(of: CacheLocation.parts(folder)) }
                var line = JSONLine()
                line.member("folder", folder.path)
                line.member("answers", numbers.answers)
                line.member("private", numbers.privateAnswers)
                line.member("files", numbers.files)
                line.member("body-bytes", numbers.bodyBytes)
                line.member("bytes", numbers.costBytes)
                line.member("parts", parts.parts)
                line.member("part-bytes", parts.bytes)
                let text = """
                    directory  \(folder.path)
                    responses  \(numbers.answers), \(numbers.privateAnswers) of them private (requested with credentials)
                    bodies     \(numbers.bodyBytes) bytes, in \(numbers.files) files and in the index
                    size       \(numbers.costBytes) bytes, compared with the setting cache-size
                    parts      \(parts.parts), \(parts.bytes) bytes, compared with the setting parts-size

                    """
                try StandardOutput().write(format.json ? line.finished() : Array(text.utf8))
                return .done
            }
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the stored responses by user, the most recently used first.",
            discussion: """
                Columns: state (fresh, stale, or doubtful after an unsafe request), HTTP status, bytes, private or -, URL. \
                A private response was requested with credentials. --json and --verbose show complete URLs.
                """)

        @OptionGroup(title: "Output") var format: FormatOptions
        @OptionGroup(title: "Output") var detail: FailureOptions
        @OptionGroup(title: "Bus") var place: CacheLocation

        func run() throws {
            try conclude {
                let now = Int64(time(nil))
                var lines = LineOutput()
                let report = try CacheCommand.reading { try CacheReport(try place.folder()) }
                try CacheCommand.reading {
                    try report.forEachLine(now: now) { answer in
                        lines.add(format.json ? Self.json(answer) : text(answer))
                    }
                }
                try lines.finish()
                return .done
            }
        }

        private static func state(_ answer: CacheReport.Line) -> String {
            answer.isInvalidated ? "doubtful" : answer.isFresh ? "fresh" : "stale"
        }

        private func text(_ answer: CacheReport.Line) -> [UInt8] {
            let words = [
                Self.state(answer), String(answer.status), String(answer.length), answer.isPrivate ? "private" : "-",
                detail.verbose ? answer.url : URLText.redacted(answer.url),
            ]
            return Array((words.joined(separator: "\t") + "\n").utf8)
        }

        private static func json(_ answer: CacheReport.Line) -> [UInt8] {
            var line = JSONLine()
            line.member("url", answer.url)
            line.member("state", state(answer))
            line.member("status", answer.status)
            line.member("length", answer.length)
            line.member("scope", answer.isPrivate ? "private" : "shared")
            line.member("at", Int(answer.responseTime))
            return line.finished()
        }
    }

    struct Verify: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Verify the checksums of all stored responses.",
            discussion: "Prints each fault on standard error. The exit code is 2 if there is one.")

        @OptionGroup(title: "Bus") var place: CacheLocation

        func run() throws {
            try conclude {
                let folder = try place.folder()
                let faults = try CacheCommand.reading { try CacheReport(folder).faults() }
                for fault in faults { CommandError.writeMessage(fault) }
                return faults.isEmpty ? .done : .someFailed
            }
        }
    }

    struct Clear: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove all stored responses and partial bodies.",
            discussion: """
                A running bus empties its cache itself: the command sets cache-size to 0, and then to its present value \
                again. With --cache-folder, the directory must not be in use. Partial bodies are in the directory `parts` \
                beside the cache.
                """)

        @OptionGroup(title: "Bus") var place: CacheLocation

        func run() throws {
            try conclude {
                let folder = try place.folder()
                let count: Int
                if place.cacheFolder == nil, try BusLocation.local(place.place.folder()).isServed() {
                    count = try CacheCommand.reading { try CacheReport(folder).numbers().answers }
                    try clearThroughBus(folder)
                } else {
                    count = try CacheCommand.reading { try CacheReport.clear(folder) }
                }
                let parts = try CacheCommand.reading { try PartFolder.clear(CacheLocation.parts(folder)) }
                CommandError.writeMessage("removed \(count) responses and \(parts) parts")
                return .done
            }
        }

        /// Maximum number of times that the files are examined after the broker has the order to empty them.
        private static let examinations = 100
        /// Time between them.
        private static let interval = Duration.milliseconds(50)

        /// Lets the broker evict all responses, and waits until the files show it.
        private func clearThroughBus(_ folder: CacheFolder) throws {
            var size: String?
            var changes = 0
            let session = try BusSession.find(in: .local(place.place.folder())) { session, event in
                switch event {
                case .answer(_, let json):
                    let name = SettingName.cacheSize.rawValue
                    let row = JSONValue(json)?.items("settings").first { $0.member("name")?.text == name }
                    size = row?.member("value")?.text
                case .changed: changes += 1
                case .refused(let reply): session.end(Refused.commandError(reply))
                case .accepted, .terminal, .progress, .cancelled, .removed, .state: break
                }
            }
            session.connection.query(.settings)
            try session.run { size != nil }
            // Both in one pass: no failure of this process leaves the cache without room.
            for value in ["0", size].compactMap(\.self) {
                guard let words = SettingWords([SettingName.cacheSize.rawValue, value]) else { continue }
                session.connection.set(words)
            }
            try session.run { changes == 2 }
            var examinations = 0
            var isEmpty = false
            var failure: (any Error)?
            func examine() {
                examinations += 1
                do {
                    isEmpty = try CacheReport(folder).numbers().answers == 0
                } catch { failure = error }
                if !isEmpty { session.loop.setTimer(after: Self.interval) { examine() } }
            }
            examine()
            try session.run { isEmpty || failure != nil || examinations >= Self.examinations }
            if let failure { throw failure }
            guard isEmpty else {
                throw CommandError(
                    .other, "the bus does not use the cache in \(folder.path); give its directory with --cache-folder")
            }
        }
    }

    /// Runs `body` and converts its errors into a `CommandError`.
    private static func reading<Value>(_ body: () throws -> Value) throws -> Value {
        do {
            return try body()
        } catch let error as StoreError {
            throw CommandError(error.kind == .other ? .other : .cannotServe, error.description)
        } catch let error as ClientError {
            throw error
        } catch let commandError as CommandError {
            throw commandError
        } catch {
            throw CommandError(.other, "cannot read the cache: \(error)")
        }
    }
}
