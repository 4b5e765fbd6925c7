import EarshotWire
import Testing

@testable import earshot

/// Notes of an `earshot watch` in the background.
struct BackgroundRecordTests {
    private let record = BackgroundRecord(
        bus: ["--runtime=/run/user/1/earshot"], handler: "night/list", directory: "/srv/my\nfiles", log: "",
        exec: "gzip -k {}")

    @Test func `a note is read as it was written, and has a file of its own`() throws {
        #expect(BackgroundRecord(fileContent: record.fileContent) == record)
        let other = BackgroundRecord(
            bus: record.bus, handler: record.handler, directory: "/tmp", log: "", exec: record.exec)
        #expect(other.fileContent != record.fileContent)
    }

    @Test(arguments: ["", "1", "2\0a\0b\0c\0d\0e", "1\0a\0b\0c\0d"])
    func `another file is no note`(text: String) {
        #expect(BackgroundRecord(fileContent: Array(text.utf8)) == nil)
    }

    @Test func `a note covers the requests of its handler on its bus`() throws {
        let (list, other) = (try #require(HandlerID("night/list")), try #require(HandlerID("night/other")))
        #expect(record.coversHandler(list, on: record.bus))
        #expect(
            !record.coversHandler(other, on: record.bus)
                && !record.coversHandler(list, on: ["--runtime=/run/user/2/earshot"]))
    }
}
