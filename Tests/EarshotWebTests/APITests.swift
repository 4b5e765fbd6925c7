import EarshotClient
import EarshotWire
import Testing

@testable import EarshotWeb

@Suite struct APITests {
    private func input(_ json: String) throws -> APIInput {
        guard case .object(let members)? = JSONValue(Array(json.utf8)) else { throw APIInput.Refusal(detail: "JSON") }
        return try APIInput(members, required: ["url"], optional: APIOperation.optionalRequestMembers)
    }

    private func fetch(_ json: String) throws -> Fetch {
        try input(json).makeFetch(handler: try #require(HandlerID("h")), id: try #require(RequestID("1")))
    }

    @Test func `the document describes the operations of the table, and no others`() throws {
        let document = try #require(JSONValue(PackageResources.openapi_json))
        guard case .object(let paths)? = document.member("paths") else { throw APIInput.Refusal(detail: "paths") }
        var described: [String: [String]] = [:]
        for path in paths {
            guard case .object(let methods) = path.value else { continue }
            for method in methods {
                let schema = resolved(
                    method.value.member("requestBody")?.member("content")?.member("application/json")?.member("schema"),
                    document)
                var names: [String] = []
                if case .object(let properties)? = schema?.member("properties") {
                    let required = schema?.items(ofMember: "required").compactMap(\.scalarText) ?? []
                    names = properties.map { required.contains($0.name) ? $0.name + "!" : $0.name }
                }
                for parameter in method.value.items(ofMember: "parameters").compactMap({ resolved($0, document) })
                where parameter.member("in")?.scalarText == "query" {
                    let isRequired = parameter.member("required")?.scalarText == "true"
                    names.append((parameter.member("name")?.scalarText ?? "") + (isRequired ? "!" : ""))
                }
                let id = method.value.member("operationId")?.scalarText ?? ""
                described["\(id) \(method.name.uppercased()) \(path.name)"] = names.sorted()
            }
        }
        var table: [String: [String]] = [:]
        for row in APIOperation.allOperations {
            table["\(row.name.rawValue) \(row.method) \(row.path)"] =
                (row.requiredMembers.map { $0 + "!" } + row.optionalMembers)
                .sorted()
        }
        #expect(described == table)
        #expect(
            APIOperation.allOperations.map(\.name.rawValue).sorted()
                == APIOperation.Name.allCases.map(\.rawValue).sorted())
    }

    private func resolved(_ value: JSONValue?, _ document: JSONValue) -> JSONValue? {
        guard let reference = value?.member("$ref")?.scalarText else { return value }
        return reference.split(separator: "/").dropFirst().reduce(document as JSONValue?) { $0?.member(String($1)) }
    }

    @Test func `members are options of a FETCH`() throws {
        let read = try fetch(
            #"{"url":"http://a/\ud83d\ude00","id":"x","durable":true,"retries":2.0,"timeout":0.5,"fields":{"A":"b","C":""},"body":"é"}"#
        )
        #expect(read.url == "http://a/\u{1f600}" && read.request.description == "x" && read.handler.description == "h")
        #expect(read.options.isDurable && read.options.retries == 2 && read.options.timeoutMilliseconds == 500)
        #expect(read.httpFields == Array("A: b\nC: ".utf8) && read.body == Array("é".utf8))
        #expect(try !fetch(#"{"url":"http://a/","method":"POST"}"#).options.coalesces)
    }

    @Test(arguments: [
        #"{}"#, #"{"url":"http://a/","url":"http://b/"}"#, #"{"url":null}"#, #"{"url":"http://a/","durable":"yes"}"#,
        #"{"url":"http://a/","retries":"2"}"#, #"{"url":"http://a/","priority":"urgent"}"#, #"{"url":"a\u0000"}"#,
        #"{"url":"http://a/","ca-file":"/etc/passwd"}"#, #"{"url":"http://a/","fields":{"a":"b\nc: d"}}"#,
        #"{"url":"http://a/","fields":{"a b":"c"}}"#, #"{"url":"http://a/","body":"a","body-base64":"YQ=="}"#,
        #"{"url":"http://a/","body-base64":"!"}"#, #"{"url":"http://a/"} x"#, #"{"url":"\ud83d"}"#,
    ])
    func `other input is refused`(json: String) {
        #expect(throws: APIInput.Refusal.self) { try fetch(json) }
    }

    @Test func `absolute URLs of an index move below the prefix`() throws {
        let base = "http://localhost:5768/"
        let text =
            #"<a href="https://f.example/a" x='http://b/'>https://c/</a>{"u":"https:\/\/d\/e","v":"/rel","w":"httpx://"}"#
        let moved = try #require(PackageIndex.rewritten(Array(text.utf8), below: base))
        #expect(PackageIndex.rewritten(Array(text.utf8), below: base, limit: moved.count) == moved)
        #expect(PackageIndex.rewritten(Array(text.utf8), below: base, limit: text.utf8.count) == nil)
        #expect(
            String(decoding: moved, as: UTF8.self)
                == #"<a href="http://localhost:5768/https://f.example/a" x='http://localhost:5768/http://b/'>https://c/</a>"#
                + #"{"u":"http://localhost:5768/https:\/\/d\/e","v":"/rel","w":"httpx://"}"#)
        #expect(PackageIndex.isIndex(mediaType: "application/vnd.pypi.simple.v1+JSON; charset=utf-8"))
        #expect(!PackageIndex.isIndex(mediaType: "application/octet-stream"))
    }
}
