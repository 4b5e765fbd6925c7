internal import ArgumentParser
internal import EarshotCache
internal import EarshotClient
internal import EarshotDisk
internal import EarshotLoop
internal import Glibc

/// `earshot cache`: inspection of the stored responses.
struct CacheCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cache",
        abstract: "Tell what the cache keeps, check it, empty it.",
        discussion: "It reads the cache's files, beside a broker that has them too. Only `clear` wants them alone.",
        subcommands: [Stat.self, List.self, Verify.self, Clear.self])

    /// Location of the cache.
    struct Place: ParsableArguments {
        @Option(help: "The folder of the cache.", completion: .directory)
        var cacheFolder: String?

        @OptionGroup var place: PlaceOptions

        func folder() throws(ClientError) -> CacheFolder {
            if let cacheFolder { return CacheFolder(Folder.absolute(cacheFolder)) }
            if place.runtime != nil { return CacheFolder(try place.folder().ownCache) }
            return CacheFolder(try RuntimeFolder.usualCache())
        }
    }

    struct Stat: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Tell how much is kept.")

        @Flag(help: "As a line of JSON.")
        var json = false

        @OptionGroup var place: Place

        func run() throws {
            try conclude {
                let folder = try place.folder()
                let numbers = try CacheCommand.reading { try CacheReport(folder).numbers() }
                var line = JSONLine()
                line.member("folder", folder.path)
                line.member("answers", numbers.answers)
                line.member("private", numbers.privateAnswers)
                line.member("files", numbers.files)
                line.member("body-bytes", numbers.bodyBytes)
                line.member("bytes", numbers.costBytes)
                let text = """
                    folder   \(folder.path)
                    answers  \(numbers.answers), of them asked for with credentials \(numbers.privateAnswers)
                    bodies   \(numbers.bodyBytes) bytes, in \(numbers.files) files and in the index
                    limit    \(numbers.costBytes) bytes count for it

                    """
                try StandardOutput().write(json ? line.finished() : Array(text.utf8))
                return .done
            }
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Tell what is kept: state, status, bytes and URL of each answer, those used last first.")

        @Flag(help: "As lines of JSON.")
        var json = false

        @OptionGroup var place: Place

        func run() throws {
            try conclude {
                let now = Int64(time(nil))
                var lines = LineOutput()
                let report = try CacheCommand.reading { try CacheReport(try place.folder()) }
                try CacheCommand.reading {
                    try report.forEachLine(now: now) { answer in
                        lines.add(json ? Self.json(answer) : Self.text(answer))
                    }
                }
                try lines.finish()
                return .done
            }
        }

        private static func state(_ answer: CacheReport.Line) -> String {
            answer.isInvalidated ? "doubtful" : answer.isFresh ? "fresh" : "stale"
        }

        private static func text(_ answer: CacheReport.Line) -> [UInt8] {
            let words = [
                state(answer), String(answer.status), String(answer.length), answer.isPrivate ? "private" : "-",
            ]
            return Array((words.joined(separator: "\t") + "\t" + answer.url + "\n").utf8)
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
            abstract: "Read all that is kept and compare it with its sums; 2 if something is wrong.")

        @OptionGroup var place: Place

        func run() throws {
            try conclude {
                let folder = try place.folder()
                let faults = try CacheCommand.reading { try CacheReport(folder).faults() }
                for fault in faults { Complaint.say(fault) }
                return faults.isEmpty ? .done : .someFailed
            }
        }
    }

    struct Clear: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove all that is kept. Under a broker that runs, `earshot set cache-size 0` does it.")

        @OptionGroup var place: Place

        func run() throws {
            try conclude {
                let folder = try place.folder()
                let count = try CacheCommand.reading { try CacheReport.clear(folder) }
                Complaint.say("\(count) answers were removed")
                return .done
            }
        }
    }

    /// Runs `body` and converts its errors into a `Complaint`.
    private static func reading<Value>(_ body: () throws -> Value) throws -> Value {
        do {
            return try body()
        } catch let error as StoreError {
            throw Complaint(error.kind == .other ? .other : .cannotServe, error.description)
        } catch let error as ClientError {
            throw error
        } catch {
            throw Complaint(.other, "the cache cannot be read: \(error)")
        }
    }
}
