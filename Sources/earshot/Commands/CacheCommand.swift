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

        func resolvedCacheFolder() throws -> CacheFolder {
            if let cacheFolder { return CacheFolder(Folder.absolutePath(cacheFolder)) }
            let runtime = try place.localRuntimeFolder(forCommand: "cache")
            if place.runtime != nil { return CacheFolder(runtime.innerCachePath) }
            return CacheFolder(try RuntimeFolder.userCachePath())
        }

        /// Returns the directory of partial bodies, which is beside the cache.
        static func partialBodiesFolder(_ cache: CacheFolder) -> String {
            Folder.siblingPath(of: cache.path, name: "parts")
        }
    }

    struct Stat: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show number and size of the stored responses and partial bodies.")

        @OptionGroup(title: "Output") var format: FormatOptions
        @OptionGroup(title: "Bus") var place: CacheLocation

        func run() throws {
            try runAndExit {
                let folder = try place.resolvedCacheFolder()
                let numbers = try CacheCommand.convertingErrors { try CacheReport(folder).totals() }
                let parts = try CacheCommand.convertingErrors {
                    try PartFolder.totals(of: CacheLocation.partialBodiesFolder(folder))
                }
                var line = JSONLine()
                line.appendMember("folder", folder.path)
                line.appendMember("answers", numbers.responseCount)
                line.appendMember("private", numbers.privateResponseCount)
                line.appendMember("files", numbers.bodyFileCount)
                line.appendMember("body-bytes", numbers.bodyBytes)
                line.appendMember("bytes", numbers.costBytes)
                line.appendMember("parts", parts.partCount)
                line.appendMember("part-bytes", parts.bodyBytes)
                let text = """
                    directory  \(folder.path)
                    responses  \(numbers.responseCount), \(numbers.privateResponseCount) of them private (requested with credentials)
                    bodies     \(numbers.bodyBytes) bytes, in \(numbers.bodyFileCount) files and in the index
                    size       \(numbers.costBytes) bytes, compared with the setting cache-size
                    parts      \(parts.partCount), \(parts.bodyBytes) bytes, compared with the setting parts-size

                    """
                try StandardOutput().write(format.json ? line.finishedLine() : Array(text.utf8))
                return .success
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
            try runAndExit {
                let now = Int64(time(nil))
                var lines = LineOutput()
                let report = try CacheCommand.convertingErrors { try CacheReport(try place.resolvedCacheFolder()) }
                try CacheCommand.convertingErrors {
                    try report.forEachResponse(now: now) { response in
                        lines.add(format.json ? Self.jsonRow(response) : textRow(response))
                    }
                }
                try lines.finish()
                return .success
            }
        }

        private static func stateText(_ response: CacheReport.ResponseSummary) -> String {
            response.isInvalidated ? "doubtful" : response.isFresh ? "fresh" : "stale"
        }

        private func textRow(_ response: CacheReport.ResponseSummary) -> [UInt8] {
            let words = [
                Self.stateText(response), String(response.status), String(response.length),
                response.isPrivate ? "private" : "-",
                detail.verbose ? response.url : URLText.redacted(response.url),
            ]
            return Array((words.joined(separator: "\t") + "\n").utf8)
        }

        private static func jsonRow(_ response: CacheReport.ResponseSummary) -> [UInt8] {
            var line = JSONLine()
            line.appendMember("url", response.url)
            line.appendMember("state", stateText(response))
            line.appendMember("status", response.status)
            line.appendMember("length", response.length)
            line.appendMember("scope", response.isPrivate ? "private" : "shared")
            line.appendMember("at", Int(response.responseTime))
            return line.finishedLine()
        }
    }

    struct Verify: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Verify the checksums of all stored responses.",
            discussion: "Prints each fault on standard error. The exit code is 2 if there is one.")

        @OptionGroup(title: "Bus") var place: CacheLocation

        func run() throws {
            try runAndExit {
                let folder = try place.resolvedCacheFolder()
                let faults = try CacheCommand.convertingErrors { try CacheReport(folder).verifyContents() }
                for fault in faults { CommandError.writeMessage(fault) }
                return faults.isEmpty ? .success : .someRequestsFailed
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
            try runAndExit {
                let folder = try place.resolvedCacheFolder()
                let count: Int
                if place.cacheFolder == nil, try BusLocation.local(place.place.runtimeFolder()).isServed() {
                    count = try CacheCommand.convertingErrors { try CacheReport(folder).totals().responseCount }
                    try clearThroughBus(folder)
                } else {
                    count = try CacheCommand.convertingErrors { try CacheReport.clearUnusedCache(folder) }
                }
                let parts = try CacheCommand.convertingErrors {
                    try PartFolder.removeAllParts(of: CacheLocation.partialBodiesFolder(folder))
                }
                CommandError.writeMessage("removed \(count) responses and \(parts) parts")
                return .success
            }
        }

        /// Maximum number of times that the command examines the files after its order to the broker.
        private static let maximumExaminations = 100
        /// Time between two examinations.
        private static let pollInterval = Duration.milliseconds(50)

        /// Lets the broker evict all responses, and waits until the files show it.
        private func clearThroughBus(_ folder: CacheFolder) throws {
            var size: String?
            var changes = 0
            let session = try BusSession.connect(to: .local(place.place.runtimeFolder())) { session, event in
                switch event {
                case .queryAnswer(_, let json):
                    let name = SettingName.cacheSize.rawValue
                    let rows = JSONValue(json)?.items(ofMember: "settings")
                    let row = rows?.first { $0.member("name")?.scalarText == name }
                    size = row?.member("value")?.scalarText
                case .settingChanged: changes += 1
                case .messageRefused(let reply): session.end(with: .refused(reply))
                case .accepted, .terminal, .progress, .cancelled, .removed, .state: break
                }
            }
            session.connection.query(.settings)
            try session.run { size != nil }
            // Both in one pass: no failure of this process leaves the cache without room.
            for value in ["0", size].compactMap(\.self) {
                guard let words = SettingWords([SettingName.cacheSize.rawValue, value]) else { continue }
                session.connection.changeSetting(words)
            }
            try session.run { changes == 2 }
            var examinations = 0
            var isEmpty = false
            var failure: (any Error)?
            func examine() {
                examinations += 1
                do {
                    isEmpty = try CacheReport(folder).totals().responseCount == 0
                } catch { failure = error }
                if !isEmpty { session.loop.setTimer(after: Self.pollInterval) { examine() } }
            }
            examine()
            try session.run { isEmpty || failure != nil || examinations >= Self.maximumExaminations }
            if let failure { throw failure }
            guard isEmpty else {
                throw CommandError(
                    .generalError,
                    "the bus does not use the cache in \(folder.path); give its directory with --cache-folder")
            }
        }
    }

    /// Runs `body` and converts its errors into a `CommandError`.
    private static func convertingErrors<Value>(_ body: () throws -> Value) throws -> Value {
        do {
            return try body()
        } catch let error as StoreError {
            throw CommandError(error.kind == .other ? .generalError : .cannotServe, error.description)
        } catch let error as ClientError {
            throw error
        } catch let commandError as CommandError {
            throw commandError
        } catch {
            throw CommandError(.generalError, "cannot read the cache: \(error)")
        }
    }
}
