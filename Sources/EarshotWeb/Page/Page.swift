/// Files of the live page, which are part of the program. They load nothing from elsewhere.
enum Page {
    static let document = WebResponse(200, "text/html; charset=utf-8", PackageResources.page_html)
    static let style = WebResponse(200, "text/css; charset=utf-8", PackageResources.page_css)
    static let icon = WebResponse(200, "image/svg+xml", PackageResources.icon_svg)
    static let script = WebResponse(200, "text/javascript; charset=utf-8", PackageResources.page_js)
}
